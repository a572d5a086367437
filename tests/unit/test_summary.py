"""What records and summaries say, against loops over what ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from conftest import RECORD, random_dataset

from gcpsl.config import Config
from gcpsl.data import FederatedData, federate
from gcpsl.metrics import PayloadSizes
from gcpsl.records import EpochRecord
from gcpsl.runtimes.base import EpochProgress, Score
from gcpsl.sampling import Holdings
from gcpsl.schedule import EpochSchedule, epoch_schedule
from gcpsl.summary import Measured, Totals, epoch_record, summarise

MakeConfig = Callable[..., Config]
SIZES = PayloadSizes(activation_bytes=100, client_bytes=10, model_bytes=50, norm_state_bytes=4)
PROGRESS = EpochProgress([9, 3], [90.0, 30.0], busy_s=[3.0, 5.0], local_s=4.0, drifts=[0.1], waits_s=[0.0])
MEASURED = Measured(0.1, PROGRESS, Score(80.0, 0.5), Score(70.0, 0.6), validation_s=0.1, test_s=0.1)
TOTALS = Totals("run", workers=2, setup_s=0.5, wall_s=77.0, memory_bytes_max=100)


def epoch_of(config: Config) -> tuple[FederatedData, EpochSchedule, EpochRecord]:
    """An epoch in which six clients are in one cluster and two in the other, and its record."""
    data = federate(config, random_dataset())
    holdings, assignment = Holdings.of(data.owners, 8), np.array([0] * 6 + [1] * 2)
    schedule = epoch_schedule(config.schedule, holdings, assignment, seed=0, epoch=1)
    return data, schedule, epoch_record(config, data, SIZES, schedule, MEASURED)


def test_a_record_counts_who_took_part_and_who_was_updated_round_by_round(small: MakeConfig) -> None:
    _, schedule, record = epoch_of(small())
    active = updated = slots = 0
    for t in range(max(schedule.rounds)):
        for plan, members in zip(schedule.plans, schedule.members, strict=True):
            for client in members:
                slots += 1
                updated += t < plan.rounds
                active += t < plan.rounds and client in plan.round(t).owners
    assert record.model_update_participation == pytest.approx(updated / slots)
    assert record.participation_system == pytest.approx(active / slots)
    assert record.participation_ran == pytest.approx(active / updated)
    assert (record.active_client_rounds, record.client_rounds) == (active, updated)
    assert active < updated < slots


def test_shares_of_one_draw_are_one_batch_to_the_batch_deviation(small: MakeConfig) -> None:
    data, schedule, record = epoch_of(small("schedule.draw=all"))
    everyones = np.bincount(data.train.labels, minlength=4) / len(data.train)
    distances = []
    for shares in zip(*schedule.plans, strict=True):
        labels = data.train.labels[np.concatenate([share.samples for share in shares])]
        distances.append(np.abs(np.bincount(labels, minlength=4) / len(labels) - everyones).sum())
    assert record.batch_deviation == pytest.approx(np.mean(distances))


def test_the_real_speedup_is_busy_time_over_wall_time(small: MakeConfig) -> None:
    config = small()
    data, _, record = epoch_of(config)
    assert record.speedup_real == 2.0
    slower = replace(record, epoch=2, busy_s=(3.0, 3.0), local_s=6.0)
    assert summarise(config, data, [record, slower], TOTALS).speedup_real == pytest.approx(14 / 10)


HISTORY = (
    RECORD,
    replace(RECORD, epoch=2, participation_ran=0.9, participation_system=0.8, batch_deviation=0.7, busy_s=(2.0, 1.0)),
    replace(RECORD, epoch=3, payload_simulator_bytes=7.0, payload_real_bytes=5.0, speedup_ideal=1.0, local_s=3.0),
    replace(RECORD, epoch=4, efficiency_ideal=0.1, rounds=(30, 40), fusion_s=2.0, validation_s=3.0),
)


def test_a_summary_has_the_means_and_sums_of_all_epochs(small: MakeConfig) -> None:
    config = small()
    summary = summarise(config, federate(config, random_dataset()), HISTORY, TOTALS)
    for name in ("participation_ran", "participation_system", "batch_deviation", "speedup_ideal", "efficiency_ideal"):
        values = [getattr(record, name) for record in HISTORY]
        assert getattr(summary, name) == pytest.approx(sum(values) / 4), name
    for name in ("payload_simulator_bytes", "payload_real_bytes"):
        assert getattr(summary, name) == sum(getattr(record, name) for record in HISTORY), name
    local_s = sum(record.local_s for record in HISTORY)
    assert summary.training_s == pytest.approx(local_s + sum(r.fusion_s + r.validation_s for r in HISTORY))
    assert summary.rounds_per_s == pytest.approx(sum(sum(record.rounds) for record in HISTORY) / local_s)
    assert summary.samples_per_s == pytest.approx(4 * 216 / local_s)
    assert (summary.wall_s, summary.setup_s, summary.memory_bytes_max) == (77.0, 0.5, 100)


@pytest.mark.parametrize(("split", "crossed"), [("validation", 3), ("test", 2)])
def test_targets_are_read_from_the_split_that_is_asked_for(split: str, crossed: int, small: MakeConfig) -> None:
    config = small(f"run.target_split={split}", "run.targets=[80]")
    data = federate(config, random_dataset())
    accuracies = [(60.0, 70.0), (70.0, 85.0), (80.0, 84.0)]
    records = [
        replace(RECORD, epoch=epoch, validation_accuracy=validation, test_accuracy=test)
        for epoch, (validation, test) in enumerate(accuracies, start=1)
    ]
    summary = summarise(config, data, records, TOTALS)
    assert (summary.target_split, summary.targets[0].epoch) == (split, crossed)
    blind = [replace(record, validation_accuracy=None, validation_loss=None) for record in records]
    summary = summarise(config, data, blind, TOTALS)
    assert (summary.target_split, summary.targets[0].epoch) == ("test", 2)
