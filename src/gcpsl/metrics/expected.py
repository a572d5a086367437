"""What an epoch's participation and batch deviation are on average, in closed form: nothing is drawn.

A cluster's batch of b out of its n samples is multivariate hypergeometric without replacement, so a client
with n_k samples is absent with probability C(n - n_k, b) / C(n, b), and a class's share of the batch is
hypergeometric. Sums of these are exact means, since expectation is linear. Knows counts and histograms,
never samples.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gcpsl.fleet import IntArray
from gcpsl.metrics.participation import Participation
from gcpsl.metrics.schedule import Schedule
from gcpsl.sampling import batch_sizes

FloatArray = NDArray[np.float64]


def expected_participation(counts: IntArray, assignment: IntArray, batch_size: int) -> Participation:
    """The mean of `participation.observed` over the sampler's draws, for clusters 0..N-1 of the assignment.

    `counts` are the clients' samples; every cluster must have a client.
    """
    members = np.bincount(assignment)
    assert members.min() > 0
    by_cluster = np.split(counts[np.argsort(assignment, kind="stable")], np.cumsum(members)[:-1])
    rounds, active = [], 0.0
    for owned in by_cluster:
        sizes, times = _sizes(int(owned.sum()), batch_size)
        rounds.append(int(times.sum()))
        active += sum(
            repeat * _clients_present(owned, int(size)) for size, repeat in zip(sizes, times.tolist(), strict=True)
        )
    return Participation(Schedule(tuple(rounds)), tuple(members.tolist()), batch_size, active)


def expected_deviation(histograms: IntArray, batch_size: int) -> float:
    """The mean of `deviation.batch_deviation` over the sampler's draws; `histograms` is [N, classes]."""
    target = histograms.sum(axis=0) / histograms.sum()
    total, batches = 0.0, 0
    for row in histograms:
        for size, repeat in zip(*_sizes(int(row.sum()), batch_size), strict=True):
            shares = np.arange(size + 1) / size
            distance = np.abs(shares - target[:, None])
            total += int(repeat) * float((_hypergeometric(row, int(size)) * distance).sum())
            batches += int(repeat)
    return total / batches


def absence(counts: IntArray, batch: int) -> FloatArray:
    """The probability that each client has no sample in a batch drawn from all their samples together."""
    total = int(counts.sum())
    assert 0 < batch <= total
    distinct, where = np.unique(counts, return_inverse=True)
    return np.array([_absent(total, int(count), batch) for count in distinct])[where]


def _clients_present(counts: IntArray, batch: int) -> float:
    total = int(counts.sum())
    distinct, clients = np.unique(counts, return_counts=True)
    absent = np.array([_absent(total, int(count), batch) for count in distinct])
    return float(clients @ (1 - absent))


def _absent(total: int, count: int, batch: int) -> float:
    """C(total - count, batch) / C(total, batch)."""
    others = total - count
    if batch > others:
        return 0.0
    lg = math.lgamma
    return math.exp(lg(others + 1) - lg(others - batch + 1) - lg(total + 1) + lg(total - batch + 1))


def _sizes(samples: int, batch_size: int) -> tuple[IntArray, IntArray]:
    """The distinct batch sizes of an epoch (at most two) and how often each occurs."""
    return np.unique(batch_sizes(samples, batch_size), return_counts=True)


def _hypergeometric(row: IntArray, batch: int) -> FloatArray:
    """P(X_c = x) of each class's samples in a batch drawn from `row`'s, as [classes, batch + 1].

    Built from the ratio of neighbours, P(x + 1) / P(x), then normalised: it needs no factorials.
    """
    own, others = row[:, None], int(row.sum()) - row[:, None]
    x = np.arange(batch + 1)
    possible = (x <= own) & (batch - x <= others)
    taken = x[:-1]
    ratio = (own - taken) * (batch - taken) / ((taken + 1) * np.maximum(others - batch + taken + 1, 1))
    steps = np.log(np.maximum(ratio, np.finfo(np.float64).tiny))
    logs = np.concatenate([np.zeros((len(row), 1)), np.cumsum(steps, axis=1)], axis=1)
    logs = np.where(possible, logs, -np.inf)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    probabilities: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return probabilities
