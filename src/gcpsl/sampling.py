"""GPSL round plans: which clients supply how many samples in one round, and which samples those are.

A cluster's epoch is one token per sample, shuffled and cut into ceil(n / B) near-equal batches, so b_k,t follows the
multivariate hypergeometric law without replacement. Each client spends its own samples in its own random order.
A plan is a function of (seed, cluster, epoch). Knows nothing of models, clusters' making or what runs the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gcpsl.errors import ConfigError
from gcpsl.fleet import IntArray
from gcpsl.seeds import Purpose, UInt64Array, keyed_bits, stream


@dataclass(frozen=True)
class Holdings:
    """Every client's samples, grouped by client: client k owns `samples[starts[k] : starts[k + 1]]`."""

    samples: IntArray
    starts: IntArray

    @classmethod
    def of(cls, owners: IntArray, clients: int) -> Holdings:
        counts = np.bincount(owners, minlength=clients)
        return cls(np.argsort(owners, kind="stable"), np.concatenate([[0], np.cumsum(counts)]))

    @property
    def counts(self) -> IntArray:
        return np.diff(self.starts)


@dataclass(frozen=True)
class RoundPlan:
    """One round of one workload: whose sample each is, sorted by client, so that a client's stand together."""

    samples: IntArray
    owners: IntArray
    bits: UInt64Array

    @property
    def size(self) -> int:
        return len(self.samples)

    @cached_property
    def _active(self) -> tuple[IntArray, IntArray]:
        return np.unique(self.owners, return_counts=True)

    @property
    def clients(self) -> IntArray:
        """The active clients, A_t."""
        return self._active[0]

    @property
    def counts(self) -> IntArray:
        """How many samples each of them supplies, b_k,t."""
        return self._active[1]


@dataclass(frozen=True)
class EpochPlan:
    """All rounds of one workload in one epoch as flat arrays; round t is the slice `bounds[t] : bounds[t + 1]`.

    `clients` owns `samples`, entry by entry, sorted by client inside a round. `bits` are each sample's own random bits
    for this epoch: what augmentation does to a sample depends on nothing else in its batch.
    """

    samples: IntArray
    clients: IntArray
    bits: UInt64Array
    bounds: IntArray

    @property
    def rounds(self) -> int:
        return len(self.bounds) - 1

    @property
    def sizes(self) -> IntArray:
        return np.diff(self.bounds)

    def round(self, t: int) -> RoundPlan:
        part = slice(self.bounds[t], self.bounds[t + 1])
        return RoundPlan(self.samples[part], self.clients[part], self.bits[part])

    def __iter__(self) -> Iterator[RoundPlan]:
        return (self.round(t) for t in range(self.rounds))


def near_equal(total: int, parts: int) -> IntArray:
    """Sizes that differ by at most one and sum to the total, larger ones first."""
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes


def batch_sizes(samples: int, batch_size: int) -> IntArray:
    """The sizes of an epoch's ceil(n / B) near-equal batches."""
    return near_equal(samples, -(-samples // batch_size))


def epoch_plan(
    holdings: Holdings, members: IntArray, batch_size: int, *, seed: int, cluster: int, epoch: int
) -> EpochPlan:
    """One cluster's epoch: each of its members' samples exactly once."""
    tokens = _shuffled_tokens(holdings, members, seed, cluster, epoch)
    return _spend(holdings, members, tokens, batch_sizes(len(tokens), batch_size), seed, epoch)


def sharded_plans(
    holdings: Holdings, workloads: int, batch_size: int, *, seed: int, epoch: int
) -> tuple[EpochPlan, ...]:
    """One global sampler over all clients whose batches of `workloads * batch_size` are dealt to the workloads.

    Every workload has the same number of rounds, and the workloads' shares of a round differ by at most one sample.
    """
    members = np.arange(len(holdings.counts))
    tokens = _shuffled_tokens(holdings, members, seed, 0, epoch)
    batches = batch_sizes(len(tokens), workloads * batch_size)
    if batches.min() < workloads:
        raise ConfigError(
            f"{len(tokens)} samples can't give each of {workloads} workloads a sample in every round: "
            "lower schedule.workloads or raise schedule.batch_size"
        )
    shares = np.array([near_equal(int(size), workloads) for size in batches])
    plan = _spend(holdings, members, tokens, shares.ravel(), seed, epoch)
    return tuple(_every(plan, workloads, n) for n in range(workloads))


def _shuffled_tokens(holdings: Holdings, members: IntArray, seed: int, cluster: int, epoch: int) -> IntArray:
    """One token per sample: the position of its owner in `members`."""
    tokens = np.repeat(np.arange(len(members)), holdings.counts[members])
    stream(seed, Purpose.SAMPLER, cluster, epoch).shuffle(tokens)
    return tokens


def _spend(
    holdings: Holdings, members: IntArray, tokens: IntArray, sizes: IntArray, seed: int, epoch: int
) -> EpochPlan:
    """Replace each token by its client's next sample, and sort every round by client."""
    samples = np.empty(len(tokens), dtype=np.int64)
    bits = np.empty(len(tokens), dtype=np.uint64)
    in_time = np.argsort(tokens, kind="stable")
    samples[in_time], bits[in_time] = client_orders(holdings, members, seed, epoch)
    rounds = np.repeat(np.arange(len(sizes)), sizes)
    by_client = np.argsort(rounds * len(members) + tokens, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    return EpochPlan(samples[by_client], members[tokens[by_client]], bits[by_client], bounds)


def client_orders(holdings: Holdings, members: IntArray, seed: int, epoch: int) -> tuple[IntArray, UInt64Array]:
    """Each member's samples in the random order it spends them, members one after another, with each sample's bits.

    A client's part depends on the seed, the epoch, its own index and its own samples' positions alone, so a remote
    client draws the same order by itself.
    """
    counts = holdings.counts[members]
    position = np.repeat(np.arange(len(members)), counts)
    local = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
    owners, indices = members[position].astype(np.uint64), local.astype(np.uint64)
    order_bits = keyed_bits(seed, Purpose.CLIENT_ORDER, epoch, owners, indices)
    key = (position.astype(np.uint64) << np.uint64(40)) | (order_bits >> np.uint64(24))
    order = np.argsort(key, kind="stable")
    samples = holdings.samples[np.repeat(holdings.starts[members], counts) + local[order]]
    return samples, keyed_bits(seed, Purpose.AUGMENTATION, epoch, owners, indices)[order]


def _every(plan: EpochPlan, step: int, first: int) -> EpochPlan:
    """The plan of every `step`-th round, beginning with round `first`."""
    starts, stops = plan.bounds[:-1][first::step], plan.bounds[1:][first::step]
    pick: NDArray[np.int64] = np.concatenate([np.arange(a, b) for a, b in zip(starts, stops, strict=True)])
    bounds = np.concatenate([[0], np.cumsum(stops - starts)])
    return EpochPlan(plan.samples[pick], plan.clients[pick], plan.bits[pick], bounds)
