"""Both countings of participation, against loops over the rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcpsl.fleet import IntArray
from gcpsl.metrics import Participation, Schedule, batch_deviation, inactivity_bounds, observed
from gcpsl.sampling import EpochPlan, Holdings, epoch_plan, sharded_plans


def plan_of(*rounds: list[int]) -> EpochPlan:
    """Rounds given by the clients of their samples; samples are numbered in order."""
    clients = np.array([client for one in rounds for client in sorted(one)], dtype=np.int64)
    bounds = np.cumsum([0, *(len(one) for one in rounds)])
    return EpochPlan(np.arange(len(clients)), clients, np.zeros(len(clients), np.uint64), bounds)


def test_a_waiting_cluster_is_inactive_in_the_system_counting_only() -> None:
    long = plan_of([0, 0], [0, 1])
    short = plan_of([2, 3])
    seen = observed([long, short], (2, 2), batch_size=2)
    assert seen.schedule == Schedule((2, 1))
    assert (seen.active, seen.client_rounds, seen.clients) == (5, 6, 4)
    assert seen.direct_ran == pytest.approx(5 / 6)
    assert seen.direct_system == pytest.approx(5 / 8)
    assert seen.inactivity_ran == pytest.approx(1 / 6)
    assert seen.inactivity_system == seen.local_compute_inactivity == pytest.approx(3 / 8)
    assert seen.model_update == pytest.approx(6 / 8)


def test_a_client_in_two_shares_of_one_round_counts_once() -> None:
    shares = [plan_of([0, 1], [2]), plan_of([1, 2], [2])]
    seen = observed(shares, (3,), batch_size=4, shared=True)
    assert (seen.active, seen.schedule.rounds, seen.client_rounds) == (4, (2,), 6)
    assert seen.model_update == 1


def owners_and_labels() -> tuple[IntArray, IntArray]:
    rng = np.random.default_rng(0)
    return np.concatenate([np.arange(20), rng.integers(0, 20, 300)]), rng.integers(0, 4, 320)


def test_drawn_plans_count_as_a_loop_over_their_rounds_does() -> None:
    owners, labels = owners_and_labels()
    holdings = Holdings.of(owners, 20)
    plans = [epoch_plan(holdings, np.arange(n, 20, 2), 8, seed=0, cluster=n, epoch=0) for n in range(2)]
    active = sum(len(one.clients) for plan in plans for one in plan)
    assert observed(plans, (10, 10), 8).active == active
    target = np.bincount(labels) / len(labels)
    distances = [
        np.abs(np.bincount(labels[one.samples], minlength=4) / one.size - target).sum()
        for plan in plans
        for one in plan
    ]
    assert batch_deviation(plans, labels, 4) == pytest.approx(np.mean(distances))


def test_shared_plans_count_as_a_loop_over_the_global_batches_does() -> None:
    owners, labels = owners_and_labels()
    plans = sharded_plans(Holdings.of(owners, 20), 4, 8, seed=0, epoch=0)
    active, distances = 0, []
    target = np.bincount(labels) / len(labels)
    for shares in zip(*plans, strict=True):
        active += len(set().union(*(share.clients.tolist() for share in shares)))
        batch = np.concatenate([share.samples for share in shares])
        distances.append(np.abs(np.bincount(labels[batch], minlength=4) / len(batch) - target).sum())
    assert observed(plans, (20,), 32, shared=True).active == active
    assert batch_deviation(plans, labels, 4, shared=True) == pytest.approx(np.mean(distances))


def test_the_bounds_are_the_papers_equations() -> None:
    bounds = inactivity_bounds((64, 64, 100, 28), 64)
    assert bounds.clusters == (0, 0, 0.36, 0)
    assert (bounds.system, bounds.participation) == (0, 1)
    assert [inactivity_bounds((256,), batch).system for batch in (64, 128)] == [0.75, 0.5]


@given(
    counts=st.lists(st.integers(1, 12), min_size=3, max_size=12),
    batch_size=st.integers(1, 12),
    clusters=st.integers(1, 3),
)
def test_observed_inactivity_never_falls_below_its_bounds(counts: list[int], batch_size: int, clusters: int) -> None:
    owners = np.repeat(np.arange(len(counts)), counts)
    holdings = Holdings.of(owners, len(counts))
    groups = [np.arange(n, len(counts), clusters) for n in range(clusters)]
    plans = [epoch_plan(holdings, group, batch_size, seed=0, cluster=n, epoch=0) for n, group in enumerate(groups)]
    seen = observed(plans, [len(group) for group in groups], batch_size)
    assert seen.inactivity_system >= seen.bounds.system - 1e-12
    assert seen.inactivity_ran <= seen.inactivity_system + 1e-12
    assert seen.direct_system <= seen.model_update <= 1
    assert 1 <= seen.schedule.speedup <= clusters


def test_ideal_speedup_and_efficiency_follow_the_longest_workload() -> None:
    schedule = Schedule((3, 4, 1))
    assert schedule.speedup == 2
    assert schedule.efficiency == pytest.approx(2 / 3)
    assert (schedule.slots("concurrent"), schedule.slots("sequential")) == (4, 8)


def test_participation_of_a_fixed_epoch_is_read_from_its_fields() -> None:
    one = Participation(Schedule((10, 10)), (5, 5), 4, active=62.5)
    assert (one.direct_ran, one.direct_system) == (0.625, 0.625)
