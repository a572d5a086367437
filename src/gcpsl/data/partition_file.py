"""Real partitions: a CSV or Parquet file whose one column names each training sample's client."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gcpsl import plugins
from gcpsl.errors import DataError, nearest

IntArray = NDArray[np.int64]


def read_partition(path: Path, column: str) -> tuple[IntArray, tuple[str, ...]]:
    """The owner of each row and the clients' names, in natural order: client2 comes before client10."""
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"partition.file = '{path}' is neither .csv nor .parquet")
    if not path.is_file():
        raise DataError(f"partition.file = '{path}' does not exist")
    names = _read_csv(path, column) if path.suffix == ".csv" else _read_parquet(path, column)
    index = {name: k for k, name in enumerate(sorted(set(names), key=_natural))}
    if "" in index:
        raise DataError(
            f"'{path}': sample {names.index('')} has no client in column '{column}'; every training sample needs one"
        )
    owners = np.fromiter((index[name] for name in names), np.int64, len(names))
    return owners, tuple(index)


def _read_csv(path: Path, column: str) -> list[str]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            _require(path, column, header)
            position = header.index(column)
            return [row[position].strip() if position < len(row) else "" for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"can't read partition.file = '{path}' as CSV: {error}") from None


def _read_parquet(path: Path, column: str) -> list[str]:
    arrow = plugins.optional("pyarrow", "parquet", "a Parquet partition.file")
    parquet = plugins.optional("pyarrow.parquet", "parquet", "a Parquet partition.file")
    try:
        with parquet.ParquetFile(path) as file:
            _require(path, column, file.schema_arrow.names)
            values = file.read(columns=[column]).column(0).to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise DataError(f"can't read partition.file = '{path}' as Parquet: {error}") from None
    return ["" if value is None else str(value).strip() for value in values]


def _require(path: Path, column: str, header: list[str]) -> None:
    if column not in header:
        raise DataError(
            f"'{path}' has no column '{column}' (partition.column); {nearest(column, header)}"
            if header
            else f"'{path}' is empty; it needs a header and one row per training sample"
        )


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Digits compare as numbers, before letters."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
