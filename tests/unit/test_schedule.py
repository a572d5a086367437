"""A schedule is data: every regime is a point on four axes, and phases cover each epoch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcpsl import config as configs
from gcpsl.config import ScheduleConfig
from gcpsl.errors import ConfigError
from gcpsl.sampling import Holdings
from gcpsl.schedule import EpochSchedule, Phase, epoch_schedule, phases, regime


def schedule_of(name: str, workloads: int = 4, batch: int = 8) -> EpochSchedule:
    owners = np.repeat(np.arange(12), np.arange(4, 16))
    assignment = np.arange(12) % workloads
    settings = regime(name, workloads, batch)
    return epoch_schedule(settings, Holdings.of(owners, 12), assignment, seed=0, epoch=1)


def test_clustered_regimes_draw_each_batch_from_its_own_cluster() -> None:
    for name in ("gcpsl", "sequential", "repartitioned"):
        schedule = schedule_of(name)
        for n, plan in enumerate(schedule.plans):
            assert set(plan.clients.tolist()) == {k for k in range(12) if k % 4 == n}
        assert sum(schedule.weights) == pytest.approx(1)
        assert not schedule.lockstep


def test_a_single_worker_draws_from_all_clients() -> None:
    (plan,) = schedule_of("single", workloads=1).plans
    assert set(plan.clients.tolist()) == set(range(12))


def test_step_synchronous_regimes_share_one_global_batch() -> None:
    data_parallel, sharded = schedule_of("data_parallel"), schedule_of("sharded")
    assert data_parallel.lockstep
    assert sharded.lockstep
    together = [sum(plan.sizes[0] for plan in schedule.plans) for schedule in (data_parallel, sharded)]
    assert together == [29, 8]  # 114 samples in ceil(114 / 32) = 4 batches, and in ceil(114 / 8) = 15


def test_regimes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'gcpsl'"):
        regime("gcpls", 4, 8)
    with pytest.raises(ConfigError, match="1 workload"):
        regime("single", 4, 8)
    with pytest.raises(ConfigError, match="evenly"):
        regime("sharded", 3, 8)


@given(st.integers(1, 300), st.integers(1, 120))
def test_fusing_every_m_rounds_cuts_the_epoch_into_phases_that_cover_it(rounds: int, every: int) -> None:
    cut = phases(ScheduleConfig(synchronise=every), rounds)
    assert cut[0].start == 0
    assert cut[-1].stop == rounds
    assert all(a.stop == b.start for a, b in pairwise(cut))
    assert all(phase.stop - phase.start <= every and phase.fuse for phase in cut)


def test_an_epoch_has_one_barrier_unless_asked_for_more() -> None:
    assert phases(ScheduleConfig(synchronise="epoch"), 9) == (Phase(0, 9, fuse=True),)
    assert phases(ScheduleConfig(synchronise="never"), 9) == (Phase(0, 9, fuse=False),)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["schedule.assignment=redrawn", "schedule.synchronise=5", "clustering.rule=random"], "needs schedule.draw"),
        (["schedule.assignment=redrawn"], "needs clustering.rule = 'random'"),
        (["schedule.execution=sequential", "schedule.synchronise=step"], "one by one"),
    ],
)
def test_axes_that_contradict_each_other_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configs.load(None, settings)
