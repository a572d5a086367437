"""Real partitions: a CSV or Parquet file whose one column names each training sample's client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcpsl import plugins
from gcpsl.data.csv_file import csv_rows, is_blank
from gcpsl.errors import ConfigError, DataError, nearest

IntArray = NDArray[np.int64]


def read_partition(path: Path, column: str) -> tuple[IntArray, tuple[str, ...]]:
    """The owner of each row and the clients' names, in natural order: client2 comes before client10."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise ConfigError(
            f"partition.file = '{path}' is neither .csv nor .parquet; save it as one of the two, and let its "
            "name say which"
        )
    if not path.is_file():
        raise DataError(
            f"partition.file = '{path}' {'is not a file' if path.exists() else 'does not exist'}; set it to the file "
            f"that names each training sample's client (a relative path starts in {Path.cwd()})"
        )
    names = _read_csv(path, column) if kind == ".csv" else _read_parquet(path, column)
    index = {name: k for k, name in enumerate(sorted(set(names), key=_natural))}
    owners = np.fromiter((index[name] for name in names), np.int64, len(names))
    return owners, tuple(index)


def _read_csv(path: Path, column: str) -> list[str]:
    rows = list(csv_rows(path, f"partition.file = '{path}'"))
    # what editors and spreadsheets leave below a table
    while rows and is_blank(rows[-1][1]):
        rows.pop()
    position = _position(path, column, rows[0][1] if rows else [])
    names = [fields[position].strip() if position < len(fields) else "" for _, fields in rows[1:]]
    if "" in names:
        _refuse_nobody(path, column, f"line {rows[1 + names.index('')][0]}")
    return names


def _read_parquet(path: Path, column: str) -> list[str]:
    arrow = plugins.optional("pyarrow", "parquet", "a Parquet partition.file")
    parquet = plugins.optional("pyarrow.parquet", "parquet", "a Parquet partition.file")
    try:
        with parquet.ParquetFile(path) as file:
            header = file.schema_arrow.names
            name = header[_position(path, column, header)]
            values = file.read(columns=[name]).column(name)
        names = _client_names(path, column, arrow, values)
    except (OSError, arrow.ArrowException) as error:
        raise DataError(f"can't read partition.file = '{path}' as Parquet: {error}; write it again") from None
    if "" in names:
        _refuse_nobody(path, column, f"row {names.index('')} (counted from 0)")
    return names


def _client_names(path: Path, column: str, arrow: Any, values: Any) -> list[str]:
    """A column's values as names, "" where there is none. Whole numbers are written as such, whatever their type."""
    types = arrow.types
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if types.is_nested(values.type):
        raise DataError(
            f"column '{column}' of '{path}' holds {values.type}; each of its values must be one text or number, "
            "the name of a client"
        )
    if types.is_binary(values.type) or types.is_large_binary(values.type):
        values = values.cast(arrow.string())
    missing = values.is_null(nan_is_null=True).to_pylist()
    present = [None if gone else value for gone, value in zip(missing, values.to_pylist(), strict=True)]
    is_number = types.is_floating(values.type) or types.is_decimal(values.type)
    if is_number and all(value is None or value % 1 == 0 for value in present):
        present = [None if value is None else int(value) for value in present]
    return ["" if value is None else str(value).strip() for value in present]


def _position(path: Path, column: str, header: list[str]) -> int:
    """Which of the header's columns is the one asked for; blanks around names don't count."""
    names = [name.strip() for name in header]
    if not any(names):
        raise DataError(f"'{path}' is empty; it needs a header and one row per training sample")
    if column.strip() not in names:
        raise ConfigError(f"'{path}' has no column '{column}' (partition.column); {nearest(column, names)}")
    if names.count(column.strip()) > 1:
        raise DataError(f"'{path}' has {names.count(column.strip())} columns '{column}'; give them names of their own")
    return names.index(column.strip())


def _refuse_nobody(path: Path, column: str, where: str) -> None:
    raise DataError(f"'{path}': {where} has no client in column '{column}'; every training sample needs one")


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Digits compare as numbers, before letters."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
