"""The columns of a study's table: their names, headings, and how each is read from a finished run.

`measure` knows the plain names of `PLAIN` and, for any accuracy q in %, the targets' `rq`, `tq`, `worker_minutes_q`,
`payload_tb_q` and `payload_real_tb_q`, as in `r85`. Knows records only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from gcpsl.config import Config
from gcpsl.errors import ConfigError, nearest
from gcpsl.metrics import Crossing, EpochMark, crossing
from gcpsl.records import EpochRecord, Summary

MIB = 2**20


@dataclass(frozen=True)
class Finished:
    """A run that has ended. The config says on which split accuracies are targets; it may be a row's, not the run's."""

    config: Config
    summary: Summary
    records: tuple[EpochRecord, ...]


@dataclass(frozen=True)
class Measure:
    """A column. `read` gives None where a run has no such value, as for a target that it never reached."""

    name: str
    heading: str
    better: Literal["higher", "lower", "neither"]
    digits: int
    read: Callable[[Finished], float | None]
    target: float | None = None
    """The accuracy in % that it waits for; runs may fail to reach it."""


def measure(name: str) -> Measure:
    """The column of a name."""
    if name in PLAIN:
        return PLAIN[name]
    known = re.fullmatch(r"(\w*?)_?(\d+(?:\.\d+)?)", name)
    if known and known[1] in AT_TARGET and 0 < float(known[2]) <= 100 and _written(known[1], known[2]) == name:
        return _at_target(name, known[1], float(known[2]))
    choices = [*PLAIN, *(_written(kind, "85") for kind in AT_TARGET)]
    raise ConfigError(f"no measure '{name}': {nearest(name, choices)}")


def target_crossing(run: Finished, target: float, payload: str = "payload_simulator_bytes") -> Crossing | None:
    """Where a run first reached an accuracy, on the split that its config names, or test where nothing is held out."""
    held_out = run.records[-1].validation_accuracy is not None
    split = run.config.run.target_split if held_out else "test"
    history = [
        EpochMark(
            getattr(record, f"{split}_accuracy"), record.schedule_rounds, record.epoch_s, getattr(record, payload)
        )
        for record in run.records
    ]
    return crossing(history, target, run.summary.workers)


def phase_gb(run: Finished) -> float:
    """Decimal GB of the simulator's payload per schedule slot."""
    slots = sum(record.schedule_rounds for record in run.records)
    return run.summary.payload_simulator_bytes / slots / 1e9


def workload_memory_mib(run: Finished) -> float:
    """A workload's share of the most that a process held."""
    workloads_per_process = run.summary.workloads / run.summary.workers
    return run.summary.memory_bytes_max / workloads_per_process / MIB


def _plain(*measures: Measure) -> dict[str, Measure]:
    return {one.name: one for one in measures}


PLAIN = _plain(
    Measure("accuracy", "Acc. (%)", "higher", 2, lambda run: run.summary.test_accuracy),
    Measure("best_val_accuracy", "Best-val (%)", "higher", 2, lambda run: run.summary.best_test_accuracy),
    Measure("participation", "Part. (%)", "higher", 2, lambda run: 100 * run.summary.participation_system),
    Measure("inactivity", "Inactivity (%)", "lower", 2, lambda run: 100 * (1 - run.summary.participation_ran)),
    Measure("batch_deviation", "Batch deviation", "lower", 2, lambda run: run.summary.batch_deviation),
    Measure("workers", "GPUs", "neither", 0, lambda run: run.summary.workers),
    Measure("phase_gb", "GB/phase", "lower", 3, phase_gb),
    Measure("memory_mib", "Memory per workload (MiB)", "lower", 0, workload_memory_mib),
    Measure("training_min", "Training (min)", "lower", 2, lambda run: run.summary.training_s / 60),
)


@dataclass(frozen=True)
class _AtTarget:
    heading: str
    digits: int
    value: Callable[[Crossing], float]
    payload: str = "payload_simulator_bytes"


AT_TARGET = {
    "r": _AtTarget("R{}", 2, lambda crossed: crossed.rounds / 1e3),
    "t": _AtTarget("t{} (min)", 2, lambda crossed: crossed.time_s / 60),
    "worker_minutes": _AtTarget("GPU-min to {}%", 2, lambda crossed: crossed.worker_minutes),
    "payload_tb": _AtTarget("TB@{}", 3, lambda crossed: crossed.payload_bytes / 1e12),
    "payload_real_tb": _AtTarget(
        "Payload (TB) to {}%", 3, lambda crossed: crossed.payload_bytes / 1e12, "payload_real_bytes"
    ),
}


def _written(kind: str, target: str) -> str:
    return kind + target if len(kind) == 1 else f"{kind}_{target}"


def _at_target(name: str, kind: str, target: float) -> Measure:
    about = AT_TARGET[kind]
    read = partial(_read_at_target, target=target, about=about)
    return Measure(name, about.heading.format(f"{target:g}"), "lower", about.digits, read, target)


def _read_at_target(run: Finished, target: float, about: _AtTarget) -> float | None:
    crossed = target_crossing(run, target, about.payload)
    return None if crossed is None else about.value(crossed)


def targets(measures: Sequence[str]) -> tuple[float, ...]:
    """The accuracies that some of these columns wait for, each once."""
    asked = [measure(name).target for name in measures]
    return tuple(sorted({target for target in asked if target is not None}))
