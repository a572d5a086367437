"""A table as text, the same for Markdown, LaTeX and HTML: columns, rows of strings, and notes below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

DASH = "–"


@dataclass(frozen=True)
class Column:
    heading: str
    number: bool = False
    """Numbers stand on the right."""
    long: bool = False
    """Its text may be broken into lines."""


@dataclass(frozen=True)
class GridRow:
    """`heading` is one text over all columns; `below` belongs to the row above it."""

    cells: tuple[str, ...]
    kind: Literal["plain", "heading", "below"] = "plain"
    best: frozenset[int] = frozenset()
    """The columns whose value is the best of all rows."""


@dataclass(frozen=True)
class Grid:
    columns: tuple[Column, ...]
    rows: tuple[GridRow, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row.cells) == (1 if row.kind == "heading" else len(self.columns))


@dataclass(frozen=True)
class Sheet:
    """A table: how it looks, and the same as records for machines, which are frozen data classes of one kind."""

    name: str
    title: str
    grid: Grid
    records: tuple[Any, ...]
    notes: tuple[str, ...] = ()


def number(value: float, digits: int) -> str:
    """With thousands separators, and at least three significant digits unless it is whole: 1,640 and 0.107."""
    size = abs(value)
    while digits and 0 < size < 10 ** (2 - digits) and digits < 9:
        digits += 1
    return f"{value:,.{digits}f}"


def spread(mean: float, sd: float | None, digits: int) -> str:
    """A mean, and the standard deviation to as many digits; whole numbers that are all equal need none."""
    shown = number(mean, digits)
    if sd is None or (not sd and not digits):
        return shown
    _, _, decimals = shown.partition(".")
    return f"{shown} ± {sd:,.{len(decimals)}f}"


def times(ratio: float) -> str:
    """Like 0.0176×, 1.02× or 1,250×."""
    return f"{number(ratio, 0 if abs(ratio) >= 100 else 2)}×"
