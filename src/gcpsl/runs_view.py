"""How runs look on a terminal and as JSON. Reads run folders and records only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcpsl import config as configs
from gcpsl.errors import GcpslError
from gcpsl.records import EpochRecord, Summary
from gcpsl.runs import RunFolder
from gcpsl.summary_view import duration, summary_view

EPOCHS_SHOWN = 10


def summary_of(folder: RunFolder) -> Summary | None:
    value = folder.read_json("summary.json")
    return Summary.from_json(value) if value else None


def status(folder: RunFolder) -> str:
    if folder.read_json("summary.json") is not None:
        return "finished"
    return "running" if folder.is_running() else "interrupted"


def runs_table(runs: Sequence[RunFolder]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("run", "status", "epochs", "data", "model", "N x B", "rule", "test %", "time"):
        right = column in ("epochs", "test %", "time")
        whole = column in ("run", "status", "epochs")
        table.add_column(column, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for run in runs:
        table.add_row(*_row(run))
    return table


def _row(run: RunFolder) -> list[str]:
    try:
        config, epochs, state = run.config(), run.epochs(), status(run)
    except GcpslError:
        return [run.name, "damaged"]
    last = EpochRecord.from_json(epochs[-1]) if epochs else None
    return [
        run.name,
        state,
        f"{len(epochs)}/{config.train.epochs}",
        config.data.name,
        config.model.name,
        f"{config.schedule.workloads} x {config.schedule.batch_size}",
        config.clustering.rule if config.schedule.draw == "cluster" else "-",
        f"{last.test_accuracy:.2f}" if last else "-",
        duration(sum(EpochRecord.from_json(epoch).epoch_s for epoch in epochs)),
    ]


def runs_json(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    return [{"run": run.name, "path": str(run.path), **_state(run)} for run in runs]


def _state(run: RunFolder) -> dict[str, Any]:
    try:
        return {"status": status(run), "epochs": len(run.epochs())}
    except GcpslError as error:
        return {"status": "damaged", "error": str(error)}


def run_view(folder: RunFolder) -> RenderableType:
    parts: list[RenderableType] = [Text(f"{folder.path}: {status(folder)}", style="bold")]
    parts += [Text(f"  {key} = {json.dumps(value)}") for key, value in changed_settings(folder).items()]
    records = [EpochRecord.from_json(value) for value in folder.epochs()]
    if records:
        parts += [Text(), epochs_table(records)]
    summary = summary_of(folder)
    if summary:
        parts += [Text(), summary_view(summary)]
    elif status(folder) == "interrupted":
        parts += [Text(f"\ncontinue it with: gcpsl runs resume {folder.path}")]
    return Group(*parts)


def run_json(folder: RunFolder) -> dict[str, Any]:
    return {
        "run": folder.name,
        "path": str(folder.path),
        "status": status(folder),
        "config": folder.config().model_dump(mode="json"),
        "environment": folder.read_json("environment.json"),
        "epochs": folder.epochs(),
        "summary": folder.read_json("summary.json"),
    }


def changed_settings(folder: RunFolder) -> dict[str, Any]:
    """The settings that differ from the defaults, by dotted key."""
    mine, default = folder.config().model_dump(mode="json"), configs.Config().model_dump(mode="json")

    def at(values: dict[str, Any], key: str) -> Any:
        section, _, name = key.rpartition(".")
        return (values[section] if section else values)[name]

    return {key: at(mine, key) for key, _, _ in configs.settings() if at(mine, key) != at(default, key)}


def epochs_table(records: Sequence[EpochRecord]) -> Table:
    """The first and last epochs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "epoch",
        "loss",
        "validation %",
        "test %",
        "participation %",
        "deviation",
        "drift",
        "seconds",
    ):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column))
    shown = list(records)
    if len(records) > EPOCHS_SHOWN:
        shown = [*records[:2], *records[2 - EPOCHS_SHOWN :]]
    for before, record in zip([None, *shown], shown, strict=False):
        if before and record.epoch != before.epoch + 1:
            table.add_row("...")
        table.add_row(
            str(record.epoch),
            f"{record.loss:.4f}",
            "-" if record.validation_accuracy is None else f"{record.validation_accuracy:.2f}",
            f"{record.test_accuracy:.2f}",
            f"{100 * record.participation_system:.2f}",
            f"{record.batch_deviation:.3f}",
            f"{record.drift[-1]:.4f}" if record.drift else "-",
            f"{record.epoch_s:.2f}",
        )
    return table
