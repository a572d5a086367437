"""An epoch's time on slots of different speeds, against a clock that is watched phase by phase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcpsl.config import ScheduleConfig
from gcpsl.metrics import Schedule, slot_times
from gcpsl.schedule import phases

some_rounds = st.lists(st.integers(1, 60), min_size=1, max_size=6)
some_synchronise = st.one_of(st.sampled_from(["epoch", "step", "never"]), st.integers(1, 70))


def watched(rounds: list[int], speeds: list[float], synchronise: str | int) -> float:
    config = ScheduleConfig.model_validate({"synchronise": synchronise})
    clock = 0.0
    for phase in phases(config, max(rounds)):
        steps = range(phase.start, phase.stop)
        for together in [[t] for t in steps] if synchronise == "step" else [list(steps)]:
            clock += max(sum(t < r for t in together) / s for r, s in zip(rounds, speeds, strict=True))
    return clock * max(speeds)


@given(some_rounds, some_synchronise, st.data())
def test_the_epoch_takes_what_a_clock_would_show(
    rounds: list[int], synchronise: str | int, data: st.DataObject
) -> None:
    speeds = data.draw(st.lists(st.floats(0.1, 9), min_size=len(rounds), max_size=len(rounds)))
    times = slot_times(rounds, speeds, synchronise)
    assert times.epoch_time == pytest.approx(watched(rounds, speeds, synchronise))
    for r, speed, idle in zip(rounds, speeds, times.idle, strict=True):
        busy = r * max(speeds) / speed
        assert 0 <= idle < 1
        assert idle == pytest.approx(1 - busy / times.epoch_time, abs=1e-12)
    assert times.speedup == pytest.approx(sum(rounds) / times.epoch_time)
    assert 0 < times.efficiency <= 1 + 1e-12
    assert times.efficiency * sum(speeds) == pytest.approx(times.speedup * max(speeds))


@given(some_rounds, some_synchronise)
def test_on_equal_slots_time_is_rounds(rounds: list[int], synchronise: str | int) -> None:
    times, schedule = slot_times(rounds, [5] * len(rounds), synchronise), Schedule(tuple(rounds))
    assert times.epoch_time == schedule.rounds_max
    assert times.speedup == schedule.speedup
    assert times.efficiency == schedule.efficiency
    assert times == slot_times(rounds, None, synchronise)


def test_rounds_in_proportion_to_speeds_leave_nobody_waiting() -> None:
    times = slot_times([20, 10, 5], [4, 2, 1], "epoch")
    assert (times.epoch_time, times.idle, times.efficiency) == (20, (0, 0, 0), 1)
    assert times.speeds == (1, 0.5, 0.25)


def test_frequent_barriers_make_fast_slots_wait_for_slow_ones() -> None:
    """Twice the rounds on the fast slot: first it waits at each barrier, and then it is alone."""
    assert slot_times([20, 10], [2, 1], "epoch").epoch_time == 20
    assert slot_times([20, 10], [2, 1], 10).epoch_time == 30
    assert slot_times([20, 10], [2, 1], "step").idle == pytest.approx([1 / 3, 1 / 3])
