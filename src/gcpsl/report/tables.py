"""A section as a table: a cell is a measure's values over the seeds, with what the paper prints beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, stdev

from gcpsl.report.grid import DASH, Column, Grid, GridRow, Sheet, spread, times
from gcpsl.report.notes import notes
from gcpsl.report.sections import OTHERS, Line, Section
from gcpsl.studies import Measure, PaperValue, measure, paper_value

NO_VALUE = "--"
ARROWS = {"higher": "\u00a0↑", "lower": "\u00a0↓", "neither": ""}


@dataclass(frozen=True)
class Cell:
    """What one row's runs have of a measure. `values` are of those runs that have one."""

    measure: Measure
    values: tuple[float, ...]
    runs: int
    paper: PaperValue | None = None

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """The sample standard deviation; one value has none."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        if self.mean is None or self.paper is None or not self.paper.mean:
            return None
        return self.mean / self.paper.mean

    def shown(self) -> str:
        """A dash is a target that no run reached; coverage is said where not all did."""
        if self.mean is None:
            return DASH if self.measure.target is not None else ""
        covered = "" if len(self.values) == self.runs else f" ({len(self.values)} of {self.runs})"
        return spread(self.mean, self.sd, self.measure.digits) + covered

    def paper_shown(self) -> str:
        if self.paper is None:
            return ""
        if self.paper.mean is None:
            return DASH
        covered = f" ({self.paper.reached} of 3)" if self.paper.reached in (1, 2) else ""
        return spread(self.paper.mean, self.paper.sd, self.measure.digits) + covered


@dataclass(frozen=True)
class Value:
    """A cell for machines. Means and deviations are over the runs that reached the target, where there is one."""

    study: str
    row: str
    label: str
    measure: str
    heading: str
    mean: float | None
    sd: float | None
    runs: int
    reached: int
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    paper_mean: float | None
    paper_sd: float | None
    paper_reached: int | None
    ratio: float | None
    paper_where: str | None


def table(section: Section) -> Sheet:
    """The section's rows and measures."""
    study = section.study
    measures = [measure(name) for name in study.measures]
    rows = [(line, [_cell(section, line, one) for one in measures]) for line in section.lines]
    columns = (
        *(Column(heading, long=study.name == OTHERS) for heading in study.headings),
        Column("Seeds", number=True),
        *(Column(one.heading + ARROWS[one.better], number=True) for one in measures),
    )
    alike = study.name != OTHERS
    best = [_best([cells[i] for _, cells in rows]) if alike else None for i in range(len(measures))]
    grid = Grid(columns, tuple(_grid_rows(section, rows, best)))
    values = tuple(_value(section, line, cell) for line, cells in rows for cell in cells)
    return Sheet(study.name, study.about, grid, values, notes(section, measures))


def _cell(section: Section, line: Line, one: Measure) -> Cell:
    read = [one.read(run) for run in line.finished]
    paper = paper_value(section.study.name, line.row.name, one.name) if section.compared else None
    return Cell(one, tuple(value for value in read if value is not None), len(read), paper)


def _grid_rows(section: Section, rows: list[tuple[Line, list[Cell]]], best: list[float | None]) -> Iterator[GridRow]:
    group = ""
    blank = ("",) * (len(section.study.headings) - 1)
    first = len(section.study.headings) + 1
    for line, cells in rows:
        if line.row.group and line.row.group != group:
            group = line.row.group
            yield GridRow((group,), "heading")
        bold = frozenset(first + i for i, cell in enumerate(cells) if best[i] is not None and cell.mean == best[i])
        head = [DASH if cell == NO_VALUE else cell for cell in section.study.cells(line.row)]
        yield GridRow((*head, str(len(line.group.runs)), *(cell.shown() for cell in cells)), "plain", bold)
        if any(cell.paper for cell in cells):
            yield GridRow(("paper", *blank, "", *(cell.paper_shown() for cell in cells)), "below")
            ratios = ("" if cell.ratio is None else times(cell.ratio) for cell in cells)
            yield GridRow(("ratio", *blank, "", *ratios), "below")


def _best(cells: list[Cell]) -> float | None:
    """The best mean of a column, among rows of which every run has a value."""
    better: Callable[[list[float]], float] = max if cells[0].measure.better == "higher" else min
    means = [cell.mean for cell in cells if cell.mean is not None and len(cell.values) == cell.runs]
    if cells[0].measure.better == "neither" or len(cells) < 2 or not means:
        return None
    best = better(means)
    return None if all(math.isclose(best, mean) for mean in means) and len(means) > 1 else best


def _value(section: Section, line: Line, cell: Cell) -> Value:
    paper = cell.paper
    return Value(
        study=section.study.name,
        row=line.row.name,
        label=line.row.title,
        measure=cell.measure.name,
        heading=cell.measure.heading,
        mean=cell.mean,
        sd=cell.sd,
        runs=cell.runs,
        reached=len(cell.values),
        seeds=line.group.seeds,
        values=cell.values,
        paper_mean=paper.mean if paper else None,
        paper_sd=paper.sd if paper else None,
        paper_reached=paper.reached if paper else None,
        ratio=cell.ratio,
        paper_where=paper.where if paper else None,
    )
