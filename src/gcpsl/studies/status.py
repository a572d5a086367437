"""How far a study is: a table of its rows and seeds, or JSON. Reads run folders only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcpsl.studies.base import Study
from gcpsl.studies.tasks import Standing
from gcpsl.summary_view import duration

ORDER = ("finished", "running", "failed", "interrupted", "missing")


def studies_table(studies: Sequence[Study]) -> RenderableType:
    """What there is to run."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("study", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("runs", justify="right")
    table.add_column("about")
    for study in studies:
        rows = len(study.chosen())
        table.add_row(study.name, str(rows), str(rows * len(study.seeds)), study.about)
    return table


def studies_json(studies: Sequence[Study]) -> list[dict[str, Any]]:
    return [
        {
            "study": study.name,
            "about": study.about,
            "seeds": list(study.seeds),
            "measures": list(study.measures),
            "rows": [{"row": row.name, "label": row.title, "default": row.default} for row in study.rows],
        }
        for study in studies
    ]


def status_view(study: Study, found: Sequence[Standing], unreadable: Sequence[str]) -> RenderableType:
    """A line per row, a column per seed: test accuracy where it is finished, else how far it is."""
    seeds = sorted({one.task.seed for one in found})
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("row", no_wrap=True)
    for seed in seeds:
        table.add_column(f"seed {seed}", justify="right", no_wrap=True)
    cells = {(row, one.task.seed): _cell(one) for one in found for row in one.task.rows}
    for row in [row.name for row in study.rows if (row.name, seeds[0]) in cells]:
        table.add_row(row, *(cells[row, seed] for seed in seeds))
    parts: list[RenderableType] = [table, Text(), Text(totals(found))]
    parts += [Text(f"{one.task.title} failed: {one.failure}") for one in found if one.status == "failed"]
    parts += [Text(f"left out, as it can't be read: {why}") for why in unreadable]
    return Group(*parts)


def status_json(study: Study, found: Sequence[Standing], unreadable: Sequence[str]) -> dict[str, Any]:
    return {
        "study": study.name,
        "runs": [
            {
                "row": row,
                "seed": one.task.seed,
                "status": one.status,
                "path": str(one.run.folder.path) if one.run else None,
                "epochs": one.epochs,
                "epochs_asked": one.task.config.train.epochs,
                "failure": one.failure if one.status == "failed" else None,
                "test_accuracy": _summary(one).get("test_accuracy"),
            }
            for one in found
            for row in one.task.rows
        ],
        "counts": _counts(found),
        "left_s": left_s(found),
        "unreadable": list(unreadable),
    }


def totals(found: Sequence[Standing]) -> str:
    """How many runs there are of each kind, and how long the rest will take one after another."""
    counts = _counts(found)
    words = [f"{counts[status]} {status}" for status in ORDER if counts[status]]
    seconds = left_s(found)
    left = f"; about {duration(seconds)} of training left" if seconds else ""
    return f"{len(found)} runs: {', '.join(words)}{left}"


def left_s(found: Sequence[Standing]) -> float | None:
    """From what the finished runs took per epoch; None where none has finished."""
    taken = [(_summary(one)["wall_s"], one.epochs) for one in found if one.status == "finished" and _summary(one)]
    if not taken:
        return None
    epoch_s: float = sum(seconds for seconds, _ in taken) / max(sum(epochs for _, epochs in taken), 1)
    return epoch_s * sum(one.epochs_left for one in found if one.status != "finished")


def _counts(found: Sequence[Standing]) -> dict[str, int]:
    counts = Counter(one.status for one in found)
    return {status: counts[status] for status in ORDER}


def _cell(one: Standing) -> str:
    if one.status == "finished":
        return f"{_summary(one)['test_accuracy']:.2f}%"
    if one.status == "missing":
        return "-"
    if one.status == "failed" and not one.epochs:
        return "failed"
    return f"{one.status} {one.epochs}/{one.task.config.train.epochs}"


def _summary(one: Standing) -> dict[str, Any]:
    return (one.run.folder.read_json("summary.json") if one.run else None) or {}
