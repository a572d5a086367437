"""From what an epoch or a run measured to its record. Pure: knows neither runtimes nor files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gcpsl.config import Config
from gcpsl.data import FederatedData
from gcpsl.metrics import (
    EpochMark,
    Participation,
    PayloadSizes,
    Schedule,
    batch_deviation,
    crossing,
    epoch_payload,
    fusions_per_epoch,
    observed,
)
from gcpsl.records import EpochRecord, Summary, TargetResult
from gcpsl.runtimes.base import EpochProgress, Score
from gcpsl.schedule import EpochSchedule


@dataclass(frozen=True)
class Measured:
    """What the runtime said of one epoch."""

    lr: float
    progress: EpochProgress
    validation: Score | None
    test: Score
    validation_s: float
    test_s: float


def epoch_record(
    config: Config, data: FederatedData, sizes: PayloadSizes, schedule: EpochSchedule, measured: Measured
) -> EpochRecord:
    """Everything that is known of an epoch once it has been evaluated."""
    progress, validation = measured.progress, measured.validation
    shared = config.schedule.draw == "all"
    took_part = _participation(config, schedule, shared=shared)
    rounds = Schedule(schedule.rounds)
    payload = epoch_payload(
        sizes,
        data.fleet.samples,
        _participation(config, schedule, shared=shared and schedule.lockstep),
        workloads=config.schedule.workloads,
        fusions=fusions_per_epoch(config.schedule.synchronise, rounds.rounds_max),
        clients=data.fleet.clients,
    )
    return EpochRecord(
        epoch=schedule.epoch,
        lr=measured.lr,
        loss=sum(progress.loss_sums) / data.fleet.samples,
        validation_accuracy=validation.accuracy if validation else None,
        validation_loss=validation.loss if validation else None,
        test_accuracy=measured.test.accuracy,
        test_loss=measured.test.loss,
        rounds=rounds.rounds,
        schedule_rounds=rounds.slots(config.schedule.execution),
        participation_ran=took_part.direct_ran,
        inactivity_ran=took_part.inactivity_ran,
        inactivity_bound_clusters=took_part.bounds.clusters,
        participation_system=took_part.direct_system,
        inactivity_system=took_part.inactivity_system,
        inactivity_bound_system=took_part.bounds.system,
        model_update_participation=took_part.model_update,
        local_compute_inactivity=took_part.local_compute_inactivity,
        active_client_rounds=int(took_part.active),
        client_rounds=took_part.client_rounds,
        batch_deviation=batch_deviation(schedule.plans, data.train.labels, data.classes, shared=shared),
        speedup_ideal=rounds.speedup,
        efficiency_ideal=rounds.efficiency,
        speedup_real=sum(progress.busy_s) / progress.local_s,
        payload_simulator_bytes=payload.simulator_bytes,
        payload_real_bytes=payload.real_bytes,
        drift=tuple(progress.drifts),
        busy_s=tuple(progress.busy_s),
        local_s=progress.local_s,
        fusion_s=progress.fusion_s,
        validation_s=measured.validation_s,
        test_s=measured.test_s,
        wait_s=tuple(progress.waits_s),
    )


def _participation(config: Config, schedule: EpochSchedule, *, shared: bool) -> Participation:
    """With `shared`, shares of one draw are one workload; else each counts by itself, for all its clients.

    The latter is what their payload follows: unless they step together, each trains a client segment of its own.
    """
    if shared:
        clients = [len(schedule.members[0])]
        batch = config.schedule.workloads * config.schedule.batch_size
        return observed(schedule.plans, clients, batch, shared=True)
    clients = [len(members) for members in schedule.members]
    return observed(schedule.plans, clients, config.schedule.batch_size)


@dataclass(frozen=True)
class Totals:
    """What only the whole process knows of a run."""

    run: str
    workers: int
    setup_s: float
    wall_s: float
    memory_bytes_max: int


def summarise(config: Config, data: FederatedData, records: Sequence[EpochRecord], totals: Totals) -> Summary:
    last = records[-1]
    best = best_record(records)
    split = config.run.target_split if last.validation_accuracy is not None else "test"
    training_s = sum(record.epoch_s for record in records)
    local_s = sum(record.local_s for record in records)
    samples = data.fleet.samples
    return Summary(
        run=totals.run,
        epochs=len(records),
        clients=data.fleet.clients,
        workloads=config.schedule.workloads,
        samples=samples,
        test_accuracy=last.test_accuracy,
        validation_accuracy=last.validation_accuracy,
        best_epoch=best.epoch if best else None,
        best_validation_accuracy=best.validation_accuracy if best else None,
        best_test_accuracy=best.test_accuracy if best else None,
        participation_ran=_mean([record.participation_ran for record in records]),
        participation_system=_mean([record.participation_system for record in records]),
        participation_bound=1 - last.inactivity_bound_system,
        batch_deviation=_mean([record.batch_deviation for record in records]),
        speedup_ideal=_mean([record.speedup_ideal for record in records]),
        speedup_real=sum(sum(record.busy_s) for record in records) / local_s,
        efficiency_ideal=_mean([record.efficiency_ideal for record in records]),
        payload_simulator_bytes=sum(record.payload_simulator_bytes for record in records),
        payload_real_bytes=sum(record.payload_real_bytes for record in records),
        training_s=training_s,
        setup_s=totals.setup_s,
        wall_s=totals.wall_s,
        rounds_per_s=sum(sum(record.rounds) for record in records) / local_s,
        samples_per_s=samples * len(records) / local_s,
        memory_bytes_max=totals.memory_bytes_max,
        target_split=split,
        targets=tuple(target_result(records, target, split, totals.workers) for target in config.run.targets),
        workers=totals.workers,
    )


def best_record(records: Sequence[EpochRecord]) -> EpochRecord | None:
    """The first epoch with the highest validation accuracy; None where nothing is held out."""
    validated = [record for record in records if record.validation_accuracy is not None]
    return max(validated, key=lambda record: (record.validation_accuracy, -record.epoch), default=None)


def target_result(records: Sequence[EpochRecord], target: float, split: str, workers: int) -> TargetResult:
    def history(payload: str) -> list[EpochMark]:
        return [
            EpochMark(getattr(r, f"{split}_accuracy"), r.schedule_rounds, r.epoch_s, getattr(r, payload))
            for r in records
        ]

    simulator = crossing(history("payload_simulator_bytes"), target, workers)
    real = crossing(history("payload_real_bytes"), target, workers)
    return TargetResult.of(target, simulator, real)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
