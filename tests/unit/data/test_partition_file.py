"""Real partitions are read from CSV and Parquet, and what is wrong with a file is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from gcpsl.config import PartitionConfig
from gcpsl.data import Partition, partition
from gcpsl.errors import DataError

CLIENTS = ["site10", "site2", "site2", "site10", "site1"]


def deal(path: Path, samples: int = 5, kept: list[int] | None = None, column: str = "client") -> Partition:
    rows = None if kept is None else np.array(kept)
    config = PartitionConfig(kind="file", file=path, column=column)
    return partition(config, np.zeros(samples, np.int64), 1, 0, rows)


def write_csv(path: Path, values: list[str] = CLIENTS) -> Path:
    path.write_text("row,client\n" + "".join(f"{row},{value}\n" for row, value in enumerate(values)), "utf-8-sig")
    return path


def write_parquet(path: Path, values: list[Any]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table({"row": range(len(values)), "client": values}), path)
    return path


def test_csv_and_parquet_name_each_samples_client_in_natural_order(tmp_path: Path) -> None:
    for path in (write_csv(tmp_path / "a.csv"), write_parquet(tmp_path / "a.parquet", CLIENTS)):
        dealt = deal(path)
        assert dealt.ids == ("site1", "site2", "site10")
        assert dealt.owners.tolist() == [2, 1, 1, 2, 0]


def test_numbers_are_names_in_numeric_order(tmp_path: Path) -> None:
    dealt = deal(write_parquet(tmp_path / "a.parquet", [10, 9, 9, 100, 10]))
    assert dealt.ids == ("9", "10", "100")
    assert dealt.owners.tolist() == [1, 0, 0, 2, 1]


def test_mixed_names_have_an_order(tmp_path: Path) -> None:
    dealt = deal(write_csv(tmp_path / "a.csv", ["b", "7", "a7", "07", "²"]))
    assert sorted(dealt.ids) == sorted(["b", "7", "a7", "07", "²"])
    assert dealt.ids[:2] == ("07", "7")


def test_rows_that_are_held_out_for_validation_are_skipped(tmp_path: Path) -> None:
    assert deal(write_csv(tmp_path / "a.csv"), kept=[1, 3, 4]).owners.tolist() == [1, 2, 0]


def test_a_client_that_only_has_held_out_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1 of 3 clients .*'site1'.*lower data.validation_fraction, or merge"):
        deal(write_csv(tmp_path / "a.csv"), kept=[0, 1, 2, 3])


def test_a_column_of_another_name_can_be_given(tmp_path: Path) -> None:
    assert deal(write_csv(tmp_path / "a.csv"), column="row").ids == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("a.csv", b"row,clients\n0,a\n", "has no column 'client' .*did you mean 'clients'"),
        ("a.csv", b"", "is empty; it needs a header"),
        ("a.csv", b"client\na\nb\n", "has 2 rows, but there are 5 training samples"),
        ("a.csv", b"row,client\n0,a\n1,\n2,b\n3,b\n4,b\n", "sample 1 has no client in column 'client'"),
        ("a.csv", b"row,client\n0,a\n1\n2,b\n3,b\n4,b\n", "sample 1 has no client"),
        ("a.csv", b"client\n\xff\xfe\n", "as CSV: .*can't decode"),
        ("a.csv", b'client\n"' + b"x" * 200_000, "as CSV: field larger"),
        ("a.parquet", b"no parquet", "can't read partition.file = .* as Parquet"),
        ("a.xlsx", b"", "is neither .csv nor .parquet"),
    ],
)
def test_a_wrong_file_is_named(file: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        deal(tmp_path / file)
    assert file in str(caught.value)


def test_a_missing_value_in_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sample 2 has no client"):
        deal(write_parquet(tmp_path / "a.parquet", ["a", "b", None, "c", "d"]))


def test_a_missing_file_or_parquet_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent.csv' does not exist"):
        deal(tmp_path / "absent.csv")
    with pytest.raises(DataError, match=r"has no column 'owner' .*choose one of: row, client"):
        deal(write_parquet(tmp_path / "a.parquet", CLIENTS), column="owner")


def test_many_rows_are_read_fast(tmp_path: Path) -> None:
    import time

    path = write_csv(tmp_path / "a.csv", [f"device-{row % 20_000}" for row in range(200_000)])
    start = time.perf_counter()
    dealt = deal(path, samples=200_000)
    assert time.perf_counter() - start < 3
    assert len(dealt.ids) == 20_000
