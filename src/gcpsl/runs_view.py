"""How runs look on a terminal and as JSON. Reads run folders and records only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcpsl import config as configs
from gcpsl.display import duration
from gcpsl.records import EpochRecord, Summary, TargetResult
from gcpsl.runs import RunFolder

EPOCHS_SHOWN = 10


def summary_of(folder: RunFolder) -> Summary | None:
    value = folder.read_json("summary.json")
    return Summary.from_json(value) if value else None


def status(folder: RunFolder) -> str:
    if folder.read_json("summary.json") is not None:
        return "finished"
    return "running" if folder.is_running() else "interrupted"


def runs_table(runs: Sequence[RunFolder]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "status", "epochs", "data", "model", "N x B", "rule", "test %", "time"):
        table.add_column(column, justify="right" if column in ("epochs", "test %", "time") else "left")
    for run in runs:
        config, epochs = run.config(), run.epochs()
        last = EpochRecord.from_json(epochs[-1]) if epochs else None
        table.add_row(
            run.name,
            status(run),
            f"{len(epochs)}/{config.train.epochs}",
            config.data.name,
            config.model.name,
            f"{config.schedule.workloads} x {config.schedule.batch_size}",
            config.clustering.rule if config.schedule.draw == "cluster" else "-",
            f"{last.test_accuracy:.2f}" if last else "-",
            duration(sum(EpochRecord.from_json(epoch).epoch_s for epoch in epochs)),
        )
    return table


def runs_json(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    return [
        {"run": run.name, "path": str(run.path), "status": status(run), "epochs": len(run.epochs())} for run in runs
    ]


def run_view(folder: RunFolder) -> RenderableType:
    parts: list[RenderableType] = [Text(f"{folder.path}: {status(folder)}", style="bold")]
    parts += [Text(f"  {key} = {value}") for key, value in changed_settings(folder).items()]
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
        table.add_column(column, justify="right")
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


def summary_view(summary: Summary) -> RenderableType:
    """A run's end, for a person."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _summary_rows(summary):
        table.add_row(name, text)
    return table


def _summary_rows(s: Summary) -> list[tuple[str, str]]:
    rows = [("test accuracy", f"{s.test_accuracy:.2f}% after {s.epochs} epochs")]
    if s.best_epoch is not None:
        best = f"{s.best_test_accuracy:.2f}% test at the best validation, {s.best_validation_accuracy:.2f}% (epoch {s.best_epoch})"
        rows.append(("best checkpoint", best))
    rows += [
        (
            "time",
            f"{duration(s.training_s)} of training, {duration(s.wall_s)} in all "
            f"({s.rounds_per_s:,.0f} rounds/s, {s.samples_per_s:,.0f} samples/s)",
        ),
        (
            "participation",
            f"{100 * s.participation_system:.1f}% of clients supply data in a round; "
            f"{s.workloads} workloads allow {100 * s.participation_bound:.1f}%",
        ),
        (
            "schedule speed-up",
            f"ideal {s.speedup_ideal:.2f}x of {s.workloads} ({100 * s.efficiency_ideal:.0f}% efficiency), "
            f"real {s.speedup_real:.2f}x in this runtime",
        ),
        (
            "payload",
            f"{_bytes(s.payload_real_bytes)} of tensors over the network, had the clients been remote",
        ),
    ]
    rows += [(f"{target.target:g}% {s.target_split}", _target(target)) for target in s.targets]
    rows.append(("memory", f"{_bytes(s.memory_bytes_max)} at most"))
    rows.append(("run folder", s.run))
    return rows


def _target(target: TargetResult) -> str:
    if target.epoch is None or target.time_s is None:
        return "not reached"
    return f"reached in epoch {target.epoch}, after {target.rounds:,} rounds and {duration(target.time_s)}"


def _bytes(count: float) -> str:
    """Decimal units, as the paper's payload has them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3f} TB"
