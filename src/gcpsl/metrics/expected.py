"""What an epoch's participation and batch deviation are on average, in closed form: nothing is drawn.

A cluster's batch of b out of its n samples is multivariate hypergeometric without replacement, so a client
with n_k samples is absent with probability C(n - n_k, b) / C(n, b), and a class's share of the batch is
hypergeometric. Sums of these are exact means, since expectation is linear. Knows counts and histograms,
never samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gcpsl.fleet import IntArray
from gcpsl.metrics.participation import Participation
from gcpsl.metrics.schedule import Schedule

FloatArray = NDArray[np.float64]

CHUNK_VALUES = 2**21
SURELY_PRESENT = -40.0
"""An absence of exp(-40) or less leaves a presence of 1 in float64."""


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
        rounds.append(sum(times))
        active += sum(repeat * _clients_present(owned, size) for size, repeat in zip(sizes, times, strict=True))
    return Participation(Schedule(tuple(rounds)), tuple(members.tolist()), batch_size, active)


def expected_deviation(histograms: IntArray, batch_size: int) -> float:
    """The mean of `deviation.batch_deviation` over the sampler's draws; `histograms` is [N, classes]."""
    target = histograms.sum(axis=0) / histograms.sum()
    total, batches = 0.0, 0
    for row in histograms:
        for size, repeat in zip(*_sizes(int(row.sum()), batch_size), strict=True):
            shares = np.arange(size + 1) / size
            distance = np.abs(shares - target[:, None])
            total += repeat * float((_hypergeometric(row, size) * distance).sum())
            batches += repeat
    return total / batches


def _clients_present(counts: IntArray, batch: int) -> float:
    """How many clients are expected to have a sample in a batch drawn from all their samples together."""
    distinct, clients = np.unique(counts, return_counts=True)
    return float(clients @ -np.expm1(_log_absence(distinct, int(counts.sum()), batch)))


def _log_absence(counts: IntArray, total: int, batch: int) -> FloatArray:
    """log(C(total - count, batch) / C(total, batch)), -inf where too few other samples are left to fill the batch.

    The ratio is the product over i < batch of 1 - count / (total - i); batch and count may change places, and the
    fewer factors are taken. Logs of factorials would lose all digits against each other in a large fleet.
    """
    fewer, more = np.minimum(counts, batch)[:, None], np.maximum(counts, batch)[:, None]
    logs = np.zeros(len(counts))
    factors = int(fewer.max())
    step = max(1, CHUNK_VALUES // len(counts))
    for start in range(0, factors, step):
        i = np.arange(start, min(start + step, factors))
        drawn = np.where(i < fewer, more / (total - i), 0.0)
        with np.errstate(divide="ignore"):
            logs += np.log1p(-np.minimum(drawn, 1.0)).sum(axis=1)
        if logs.max() < SURELY_PRESENT:
            break
    return logs


def _sizes(samples: int, batch_size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The distinct sizes of an epoch's batches (at most two, see `sampling.batch_sizes`) and how often each occurs."""
    batches = -(-samples // batch_size)
    size, larger = divmod(samples, batches)
    return ((size, size + 1), (batches - larger, larger)) if larger else ((size,), (batches,))


def _hypergeometric(row: IntArray, batch: int) -> FloatArray:
    """P(X_c = x) of each class's samples in a batch drawn from `row`'s, as [classes, batch + 1].

    Built from the ratio of neighbours, P(x + 1) / P(x), then normalised: it needs no factorials.
    """
    own, others = row[:, None], int(row.sum()) - row[:, None]
    x = np.arange(batch + 1)
    possible = (x <= own) & (batch - x <= others)
    taken = x[:-1]
    # two quotients, since a product of counts can leave the int64 range
    ratio = (own - taken) / (taken + 1) * ((batch - taken) / np.maximum(others - batch + taken + 1, 1))
    steps = np.log(np.maximum(ratio, np.finfo(np.float64).tiny))
    logs = np.concatenate([np.zeros((len(row), 1)), np.cumsum(steps, axis=1)], axis=1)
    logs = np.where(possible, logs, -np.inf)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    probabilities: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return probabilities
