"""A measure of a row as a point or a bar: its mean, its spread, and what the paper prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from gcpsl.report.grid import number
from gcpsl.report.sections import Line, Section
from gcpsl.report.style import INK, MUTED, SURFACE
from gcpsl.studies import measure, paper_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR = 0.38


@dataclass(frozen=True)
class Point:
    """`reached` of `runs` have a value."""

    mean: float
    sd: float
    reached: int
    runs: int


@dataclass(frozen=True)
class Bar:
    """A bar of ours, and of the paper's beside it where both are on one scale."""

    label: str
    colour: str
    hatch: str
    ours: Point | None
    paper: float | None = None


def point(line: Line, name: str, scale: float = 1) -> Point | None:
    """None where no run has a value."""
    read = [measure(name).read(run) for run in line.finished]
    values = [value / scale for value in read if value is not None]
    if not values:
        return None
    return Point(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values), len(read))


def printed(section: Section, row: str, name: str, scale: float = 1) -> float | None:
    """The paper's mean, where the section is one that it can stand beside."""
    value = paper_value(section.study.name, row, name) if section.compared else None
    return value.mean / scale if value and value.mean is not None else None


def draw_bars(axes: Axes, bars: Sequence[Bar], unit: str, digits: int = 2) -> None:
    """Lying bars, the first on top, each with its value; the paper's are thinner and empty."""
    with_paper = any(bar.paper is not None for bar in bars)
    highest = max([bar.ours.mean + bar.ours.sd for bar in bars if bar.ours] + [bar.paper or 0.0 for bar in bars]) or 1.0
    for place, bar in enumerate(bars):
        top = place - (BAR / 2 if with_paper else 0)
        if bar.ours:
            _bar(axes, top, bar.ours.mean, bar.ours.sd, bar.colour, bar.hatch, _said(bar.ours, digits), highest)
        else:
            axes.text(0, top, " not reached", va="center", color=INK, size=9)
        if bar.paper is not None:
            axes.barh(place + BAR / 2, bar.paper, BAR * 0.72, facecolor="none", edgecolor=MUTED, linewidth=1.2)
            axes.text(
                bar.paper + highest * 0.02, place + BAR / 2, f"paper {number(bar.paper, digits)}", va="center", size=8.5
            )
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, highest * 1.42)
    axes.set_xlabel(unit)
    axes.grid(visible=False, axis="y")
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter("{x:,.10g}")


def _bar(axes: Axes, place: float, mean: float, sd: float, colour: str, hatch: str, said: str, highest: float) -> None:
    axes.barh(place, mean, BAR, color=colour, hatch=hatch, edgecolor=SURFACE, linewidth=0)
    if sd:
        axes.errorbar(mean, place, xerr=sd, color=INK, capsize=3, linewidth=1.2, fmt="none")
    axes.text(mean + sd + highest * 0.02, place, said, va="center", size=9)


def _said(ours: Point, digits: int) -> str:
    covered = "" if ours.reached == ours.runs else f" ({ours.reached} of {ours.runs})"
    return number(ours.mean, digits) + covered
