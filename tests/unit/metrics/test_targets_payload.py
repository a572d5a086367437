"""Targets read off a history, and payload formulas written out term by term."""

from __future__ import annotations

import pytest

from gcpsl.metrics import (
    Crossing,
    EpochMark,
    Participation,
    PayloadSizes,
    Schedule,
    crossing,
    epoch_payload,
    fusion_bytes,
    fusions_per_epoch,
)

HISTORY = [
    EpochMark(accuracy=70, slots=10, elapsed_s=30, payload_bytes=5),
    EpochMark(accuracy=85, slots=12, elapsed_s=60, payload_bytes=6),
    EpochMark(accuracy=84, slots=10, elapsed_s=30, payload_bytes=5),
    EpochMark(accuracy=90, slots=10, elapsed_s=30, payload_bytes=5),
]


def test_a_target_is_crossed_at_the_first_epoch_at_or_above_it() -> None:
    assert crossing(HISTORY, 85, workers=4) == Crossing(
        target=85, epoch=2, rounds=22, time_s=90, worker_minutes=6, payload_bytes=11
    )


def test_a_target_never_reached_is_none_and_not_zero_cost() -> None:
    assert crossing(HISTORY, 90.1, workers=4) is None
    assert crossing([], 10, workers=1) is None


def test_an_epoch_without_an_accuracy_crosses_nothing() -> None:
    blind = EpochMark(accuracy=float("nan"), slots=1, elapsed_s=1)
    found = crossing([blind, *HISTORY], 80, workers=1)
    assert found is not None
    assert (found.epoch, found.rounds) == (3, 23)


SIZES = PayloadSizes(activation_bytes=100, client_bytes=10, model_bytes=50, norm_state_bytes=4)
EPOCH = Participation(Schedule((3, 2)), (6, 4), 8, active=11)  # R = 3*6 + 2*4 = 26


def test_a_fusion_moves_every_replica_both_ways_and_every_clients_segment_once() -> None:
    assert fusion_bytes(SIZES, workloads=2, clients=10) == 2 * 2 * (50 + 4) + 10 * 10
    assert fusion_bytes(SIZES, workloads=1, clients=10) == 0


def test_both_payloads_are_the_formulas_of_the_notes() -> None:
    payload = epoch_payload(SIZES, samples=40, participation=EPOCH, workloads=2, fusions=1)
    assert payload.simulator_bytes == 4 * 100 * 40 + 4 * 10 * 26 + 316
    assert payload.real_bytes == 2 * 100 * 40 + 10 * (11 + 26) + 316
    assert payload.per_phase_gb(3) == pytest.approx(payload.simulator_bytes / 3e9)


@pytest.mark.parametrize("fusions", [0, 5])
def test_the_payload_grows_by_one_fusion_per_barrier(fusions: int) -> None:
    def total(count: int) -> float:
        return epoch_payload(SIZES, 40, EPOCH, workloads=2, fusions=count).real_bytes

    assert total(fusions) - total(0) == fusions * 316


def test_fusions_follow_the_schedules_synchronise_setting() -> None:
    assert [fusions_per_epoch(how, 98) for how in ("epoch", "never", "step", 100, 50, 1)] == [
        1,
        0,
        0,
        1,
        2,
        98,
    ]
