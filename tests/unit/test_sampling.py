"""The GPSL sampler: plans conserve samples, follow their law, and are a function of (seed, cluster, epoch)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcpsl.errors import ConfigError
from gcpsl.fleet import IntArray
from gcpsl.sampling import Holdings, batch_sizes, client_orders, epoch_plan, near_equal, sharded_plans
from gcpsl.seeds import Purpose, keyed_bits

counts_of_clients = st.lists(st.integers(1, 30), min_size=1, max_size=12)


def fleet_of(counts: list[int], seed: int = 0) -> tuple[IntArray, Holdings]:
    owners = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    return owners, Holdings.of(owners, len(counts))


@given(counts_of_clients, st.integers(1, 40), st.integers(0, 1000), st.integers(0, 50))
def test_an_epoch_uses_every_sample_of_the_cluster_exactly_once(
    counts: list[int], batch: int, seed: int, epoch: int
) -> None:
    owners, holdings = fleet_of(counts)
    members = np.arange(0, len(counts), 2)
    plan = epoch_plan(holdings, members, batch, seed=seed, cluster=0, epoch=epoch)
    assert sorted(plan.samples) == sorted(np.flatnonzero(np.isin(owners, members)))
    assert np.array_equal(owners[plan.samples], plan.clients)


@given(counts_of_clients, st.integers(1, 40))
def test_batches_differ_by_at_most_one_and_none_exceeds_the_batch_size(counts: list[int], batch: int) -> None:
    _, holdings = fleet_of(counts)
    plan = epoch_plan(holdings, np.arange(len(counts)), batch, seed=0, cluster=0, epoch=0)
    assert plan.rounds == math.ceil(sum(counts) / batch)
    assert plan.sizes.max() - plan.sizes.min() <= 1
    assert plan.sizes.max() <= batch


def test_fifty_thousand_samples_make_782_rounds_of_63_or_64() -> None:
    sizes = batch_sizes(50_000, 64)
    assert len(sizes) == 782
    assert set(sizes.tolist()) == {63, 64}


@given(counts_of_clients, st.integers(1, 20))
def test_a_round_lists_its_active_clients_with_what_each_supplies(counts: list[int], batch: int) -> None:
    owners, holdings = fleet_of(counts)
    for round_plan in epoch_plan(holdings, np.arange(len(counts)), batch, seed=1, cluster=0, epoch=0):
        assert np.array_equal(np.repeat(round_plan.clients, round_plan.counts), owners[round_plan.samples])
        assert round_plan.size == round_plan.counts.sum()
        assert (np.diff(round_plan.clients) > 0).all()


def test_a_plan_is_a_function_of_seed_cluster_and_epoch() -> None:
    _, holdings = fleet_of([20, 30, 10])
    members = np.arange(3)

    def drawn(seed: int, cluster: int, epoch: int) -> list[int]:
        return [int(i) for i in epoch_plan(holdings, members, 8, seed=seed, cluster=cluster, epoch=epoch).samples]

    assert drawn(1, 2, 3) == drawn(1, 2, 3)
    assert len({tuple(drawn(*key)) for key in [(1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 4)]}) == 4


def test_the_number_of_a_clients_samples_in_a_batch_is_hypergeometric() -> None:
    counts, batch = [5, 15, 20], 8
    _, holdings = fleet_of(counts)
    seen = np.zeros(batch + 1)
    for epoch in range(3000):
        first = epoch_plan(holdings, np.arange(3), batch, seed=0, cluster=0, epoch=epoch).round(0)
        seen[int(first.counts[first.clients == 0].sum())] += 1
    total = sum(counts)
    law = [math.comb(5, x) * math.comb(total - 5, batch - x) / math.comb(total, batch) for x in range(batch + 1)]
    assert np.abs(seen / seen.sum() - law).max() < 0.03


def test_every_sample_is_equally_likely_in_every_round() -> None:
    _, holdings = fleet_of([3, 9])
    hits = np.zeros(12)
    for epoch in range(4000):
        hits[epoch_plan(holdings, np.arange(2), 4, seed=0, cluster=0, epoch=epoch).round(0).samples] += 1
    assert np.abs(hits / 4000 - 4 / 12).max() < 0.03


def test_a_client_draws_its_own_order_without_knowing_the_others() -> None:
    owners, holdings = fleet_of([7, 11, 5])
    everyone, _ = client_orders(holdings, np.arange(3), seed=4, epoch=9)
    alone = np.flatnonzero(owners == 1)
    bits = keyed_bits(4, Purpose.CLIENT_ORDER, 9, np.full(11, 1, np.uint64), np.arange(11, dtype=np.uint64))
    assert alone[np.argsort(bits)].tolist() == everyone[7:18].tolist()


def test_a_samples_augmentation_bits_depend_on_nothing_but_epoch_and_sample() -> None:
    _, holdings = fleet_of([7, 11, 5])
    few = epoch_plan(holdings, np.array([1]), 4, seed=4, cluster=0, epoch=9)
    many = epoch_plan(holdings, np.arange(3), 9, seed=4, cluster=1, epoch=9)
    in_many = dict(zip(many.samples.tolist(), many.bits.tolist(), strict=True))
    assert [in_many[sample] for sample in few.samples.tolist()] == few.bits.tolist()


@given(counts_of_clients, st.integers(0, 1000), st.integers(0, 50))
def test_every_sample_has_other_augmentation_bits_in_every_epoch(counts: list[int], seed: int, epoch: int) -> None:
    _, holdings = fleet_of(counts)
    everyone = np.arange(len(counts))
    seen = [
        bits
        for each in (epoch, epoch + 1)
        for bits in epoch_plan(holdings, everyone, 8, seed=seed, cluster=0, epoch=each).bits.tolist()
    ]
    assert len(set(seen)) == 2 * sum(counts)


@given(st.lists(st.integers(1, 30), min_size=3, max_size=12), st.integers(1, 4), st.integers(2, 9))
def test_shards_of_a_global_batch_partition_it_evenly(counts: list[int], workloads: int, batch: int) -> None:
    owners, holdings = fleet_of(counts)
    smallest = min(batch_sizes(len(owners), workloads * batch))
    if smallest < workloads:
        with pytest.raises(ConfigError, match="a sample in every round"):
            sharded_plans(holdings, workloads, batch, seed=0, epoch=1)
        return
    plans = sharded_plans(holdings, workloads, batch, seed=0, epoch=1)
    assert len({plan.rounds for plan in plans}) == 1
    assert sorted(np.concatenate([plan.samples for plan in plans])) == list(range(len(owners)))
    sizes = np.stack([plan.sizes for plan in plans])
    assert (sizes.max(axis=0) - sizes.min(axis=0) <= 1).all()


def test_one_shard_of_one_is_the_plain_plan() -> None:
    _, holdings = fleet_of([20, 30, 10])
    (shard,) = sharded_plans(holdings, 1, 8, seed=3, epoch=2)
    plain = epoch_plan(holdings, np.arange(3), 8, seed=3, cluster=0, epoch=2)
    assert shard.samples.tolist() == plain.samples.tolist()
    assert shard.bounds.tolist() == plain.bounds.tolist()


@given(st.integers(0, 1000), st.integers(1, 50))
def test_near_equal_sizes_sum_to_the_total(total: int, parts: int) -> None:
    sizes = near_equal(total, parts)
    assert sizes.sum() == total
    assert sizes.max() - sizes.min() <= 1
