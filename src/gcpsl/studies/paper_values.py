"""What the paper prints of its studies, to stand beside what was measured. Nothing in here was worked out by us.

`paper_values.csv` has a line per printed value, `paper_comparisons.csv` one per printed comparison of two rows; `where`
says in which table or section it stands. Measures and units are those of `measures.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal


@dataclass(frozen=True)
class PaperValue:
    """A mean over three runs, of those that reached the target where the measure has one."""

    study: str
    row: str
    measure: str
    mean: float | None
    """None is the paper's dash: a target that no run reached."""
    sd: float | None
    reached: int | None
    """How many of the three runs reached the target, where the paper says."""
    where: str


@dataclass(frozen=True)
class PaperComparison:
    """What the paper says of a row's measure against another row's.

    A `ratio` is the row's value over the other's, a `difference` the row's less the other's, and a `reduction_percent`
    how much of the other's is gone.
    """

    study: str
    row: str
    against: str
    measure: str
    kind: Literal["ratio", "difference", "reduction_percent"]
    value: float
    where: str


@cache
def paper_values() -> tuple[PaperValue, ...]:
    return tuple(
        PaperValue(
            line["study"],
            line["row"],
            line["measure"],
            _number(line["mean"]),
            _number(line["sd"]),
            int(line["reached"]) if line["reached"] else None,
            line["where"],
        )
        for line in _lines("paper_values.csv")
    )


@cache
def paper_comparisons() -> tuple[PaperComparison, ...]:
    return tuple(
        PaperComparison(**{**line, "value": float(line["value"])})  # type: ignore[arg-type]
        for line in _lines("paper_comparisons.csv")
    )


def paper_value(study: str, row: str, measure: str) -> PaperValue | None:
    """What the paper prints there; None where it prints nothing."""
    asked = (study, row, measure)
    return next((value for value in paper_values() if (value.study, value.row, value.measure) == asked), None)


def _lines(name: str) -> Iterator[dict[str, str]]:
    text = (resources.files("gcpsl.studies") / name).read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


def _number(text: str) -> float | None:
    return float(text) if text else None
