"""A fleet from a CSV of `client,count[,class counts...]`: what a coordinator can know before any training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gcpsl.data.csv_file import csv_rows, is_blank
from gcpsl.errors import DataError
from gcpsl.fleet import Fleet, IntArray

HEADER = "client,count[,one column per class...]"
SAMPLES_MAX = 10**12


def fleet_from_csv(path: str | Path) -> Fleet:
    """The fleet that the file describes, in the file's order; what is wrong is named by file and line."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"no file '{path}'; the planner reads a CSV with the header {HEADER}")
    return _read(path, csv_rows(path, f"'{path}'"))


def _read(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Fleet:
    _, header = next(rows, (0, []))
    classes = _classes(path, header)
    line_of: dict[str, int] = {}
    numbers: list[list[int]] = []
    for line, row in rows:
        if is_blank(row):
            continue
        where = f"'{path}' line {line}"
        if len(row) != 2 + classes:
            raise DataError(f"{where} has {len(row)} fields, but the header has {2 + classes}")
        name = row[0].strip()
        if not name:
            raise DataError(f"{where}: the client has no name; give every client one of its own")
        if name in line_of:
            raise DataError(f"{where}: client '{name}' is already on line {line_of[name]}; merge the two")
        line_of[name] = line
        numbers.append(_numbers(where, row[1:]))
    if not numbers:
        raise DataError(f"'{path}' names no clients; below the header it needs one line per client")
    table: IntArray = np.array(numbers, dtype=np.int64)
    return Fleet(tuple(line_of), table[:, 0].copy(), table[:, 1:] if classes else None)


def _classes(path: Path, header: list[str]) -> int:
    """How many class columns the header names."""
    names = [name.strip().lower() for name in header]
    if names[:2] != ["client", "count"]:
        found = f"begins with '{','.join(header[:3])}'" if header else "is empty"
        hint = "; separate the columns by commas" if header and ";" in header[0] else ""
        raise DataError(f"'{path}' {found}, but its first line must be the header {HEADER}{hint}")
    return len(names) - 2


def _numbers(where: str, fields: list[str]) -> list[int]:
    """A line's count and class counts, checked."""
    values = [_whole(where, field) for field in fields]
    count, histogram = values[0], values[1:]
    if count < 1:
        raise DataError(f"{where}: the count is {count}; a client needs at least 1 sample, so leave it out")
    if histogram and min(histogram) < 0:
        raise DataError(f"{where}: a class count is {min(histogram)}; class counts are 0 or more")
    if histogram and sum(histogram) != count:
        raise DataError(f"{where}: the class counts sum to {sum(histogram)}, but the count is {count}")
    return values


def _whole(where: str, field: str) -> int:
    try:
        value = int(field)
    except ValueError:
        raise DataError(f"{where}: '{field[:40]}' is not a whole number of samples") from None
    if abs(value) > SAMPLES_MAX:
        raise DataError(f"{where}: {field[:40]} is more than a client's most samples, {SAMPLES_MAX:,}")
    return value
