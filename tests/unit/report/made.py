"""Run folders that no training made: their numbers are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from conftest import RECORD

from gcpsl.config import Config, load, override
from gcpsl.records import EpochRecord, Summary
from gcpsl.report.collect import collect
from gcpsl.report.sections import Section, sections
from gcpsl.runs import RunFolder
from gcpsl.studies import Study, paper_studies

ENVIRONMENT = {
    "python": "3.11.0",
    "packages": {"gcpsl": "0.1.0", "torch": "2.8.0"},
    "commit": "0123456789abcdef",
    "cpu": "A processor",
    "gpu": None,
}


def records_of(accuracies: Sequence[float]) -> tuple[EpochRecord, ...]:
    """Epochs of 4 schedule slots, 1.2 s and 50 or 100 bytes each."""
    return tuple(
        replace(RECORD, epoch=epoch, test_accuracy=accuracy, validation_accuracy=accuracy)
        for epoch, accuracy in enumerate(accuracies, start=1)
    )


def summary_of(records: Sequence[EpochRecord]) -> Summary:
    last = records[-1]
    return Summary(
        run="somewhere",
        epochs=len(records),
        clients=8,
        workloads=len(last.rounds),
        samples=100,
        test_accuracy=last.test_accuracy,
        validation_accuracy=last.validation_accuracy,
        best_epoch=len(records),
        best_validation_accuracy=last.validation_accuracy,
        best_test_accuracy=last.test_accuracy,
        participation_ran=0.5,
        participation_system=0.5,
        participation_bound=1.0,
        batch_deviation=0.3,
        speedup_ideal=2.0,
        speedup_real=1.0,
        efficiency_ideal=1.0,
        payload_simulator_bytes=100.0 * len(records),
        payload_real_bytes=50.0 * len(records),
        training_s=1.2 * len(records),
        setup_s=1.0,
        wall_s=10.0,
        rounds_per_s=1.0,
        samples_per_s=1.0,
        memory_bytes_max=2**21,
        target_split="validation",
    )


def make_run(root: Path, name: str, config: Config, accuracies: Sequence[float], *, ended: bool = True) -> RunFolder:
    """A run of this config whose accuracies are given, epoch by epoch."""
    folder = RunFolder.create(override(config, f"run.root={root}", f"run.name={name}"), ENVIRONMENT)
    records = records_of(accuracies)
    for record in records:
        folder.log_epoch(record.to_json())
    if ended:
        folder.write_json("summary.json", summary_of(records).to_json())
    return folder


def make_row(root: Path, study: str, row: str, seeds: Sequence[Sequence[float]]) -> None:
    """Runs of a row of the paper's, a seed each."""
    found = next(one for one in paper_studies() if one.name == study).row(row)
    for seed, accuracies in enumerate(seeds):
        make_run(root, f"{study}-{row}-{seed}", found.seeded(seed), accuracies)


def sections_of(root: Path, studies: Sequence[Study] | None = None) -> tuple[Section, ...]:
    chosen = paper_studies() if studies is None else studies
    return sections(chosen, collect([root]), compared={study.name for study in paper_studies()})


QUICK = load(None, ["partition.clients=8", "train.epochs=2", "model.name=mlp", "runtime.device=cpu"])
