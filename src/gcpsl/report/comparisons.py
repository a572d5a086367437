"""The paper's printed comparisons of two rows, worked out on our runs too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

from gcpsl.report.grid import DASH, Column, Grid, GridRow, Sheet, number
from gcpsl.report.sections import Line, Section
from gcpsl.studies import PaperComparison, measure, paper_comparisons

KINDS = {"ratio": "ratio", "difference": "difference", "reduction_percent": "reduction (%)"}


@dataclass(frozen=True)
class Compared:
    """`ours` is none where a row has no runs that reached the target."""

    study: str
    row: str
    against: str
    measure: str
    kind: str
    ours: float | None
    paper: float
    where: str


def comparisons(sections: Iterable[Section]) -> Sheet | None:
    """A line per comparison of which both rows have runs; none, if there is no such."""
    found = tuple(_compared(tuple(section for section in sections if section.compared)))
    if not found:
        return None
    columns = [Column(name) for name in ("Study", "Row", "Against", "Measure", "As")]
    columns += [Column("Ours", number=True), Column("Paper", number=True)]
    rows = tuple(
        GridRow(
            (
                one.study,
                one.row,
                one.against,
                measure(one.measure).heading,
                KINDS[one.kind],
                DASH if one.ours is None else number(one.ours, 2),
                number(one.paper, 2),
            )
        )
        for one in found
    )
    how = "A ratio is the row over the other, a difference the row less the other, of means over the seeds."
    return Sheet("comparisons", "What the paper says of two rows, and ours", Grid(tuple(columns), rows), found, (how,))


def _compared(sections: tuple[Section, ...]) -> Iterator[Compared]:
    for said in paper_comparisons():
        section = next((section for section in sections if section.study.name == said.study), None)
        row, against = (section.line(said.row), section.line(said.against)) if section else (None, None)
        if row and against:
            yield Compared(
                said.study,
                said.row,
                said.against,
                said.measure,
                said.kind,
                _ours(said, row, against),
                said.value,
                said.where,
            )


def _ours(said: PaperComparison, row: Line, against: Line) -> float | None:
    ours, other = _mean(said.measure, row), _mean(said.measure, against)
    if ours is None or other is None or (said.kind != "difference" and not other):
        return None
    if said.kind == "ratio":
        return ours / other
    return ours - other if said.kind == "difference" else 100 * (1 - ours / other)


def _mean(name: str, line: Line) -> float | None:
    values = [value for value in map(measure(name).read, line.finished) if value is not None]
    return fmean(values) if values else None
