"""Real partitions are read from CSV and Parquet, and what is wrong with a file is named."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from gcpsl.config import PartitionConfig
from gcpsl.data import Partition, partition
from gcpsl.errors import ConfigError, DataError

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
        ("a.csv", b"", "is empty; it needs a header"),
        ("a.csv", b"client\na\nb\n", "has 2 rows, but there are 5 training samples"),
        ("a.csv", b"row,client\n0,a\n1,\n2,b\n3,b\n4,b\n", "line 3 has no client in column 'client'"),
        ("a.csv", b"row,client\n0,a\n1\n2,b\n3,b\n4,b\n", "line 3 has no client"),
        ("a.csv", b"client\na\nb\n\nb\na\n", "line 4 has no client"),
        ("a.csv", b'client\n"two\nlines"\nb\n\nb\na\n', "line 5 has no client"),
        ("a.csv", b"row,client\n0,a\n1,a\n2,b\n3,b\n4,\n\n", "line 6 has no client"),
        ("a.csv", b"\n\n", "is empty; it needs a header"),
        ("a.csv", b"client, client\na,b\n", "has 2 columns 'client'"),
        ("a.csv", b"client\n\xff\xfe\n", "as CSV: it is not UTF-8 text; save it as UTF-8"),
        ("a.csv", "client\na\n".encode("utf-16"), "as CSV: it is UTF-16; save it as UTF-8"),
        ("a.csv", "client\na\n".encode("utf-16-le"), "as CSV: it is not UTF-8 text; save it as UTF-8"),
        ("a.csv", b'client\n"' + b"x" * 200_000, "as CSV: field larger .* in line 2; look for a quotation mark"),
        ("a.parquet", b"no parquet", "can't read partition.file = .* as Parquet"),
    ],
)
def test_a_wrong_file_is_named(file: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        deal(tmp_path / file)
    assert file in str(caught.value)


@pytest.mark.parametrize(
    "values", [["a", "b", None, "c", "d"], ["a", "b", " ", "c", "d"], [1.0, 2.0, float("nan"), 1.0, 3.0], [None] * 5]
)
def test_a_missing_value_in_parquet_is_refused_by_its_row(values: list[Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"row {0 if values[0] is None else 2} \(counted from 0\) has no client"):
        deal(write_parquet(tmp_path / "a.parquet", values))


@pytest.mark.parametrize("values", [[{"home": 1}] * 5, [[1, 2]] * 5])
def test_a_nested_parquet_column_is_refused(values: list[Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column 'client' of '.*a.parquet' holds .*must be one text or number"):
        deal(write_parquet(tmp_path / "a.parquet", values))


@pytest.mark.parametrize(
    "values", [[10.0, 9.0, 9.0, 100.0, 10.0], [*map(Decimal, ["10.0", "9.0", "9.0", "100.0", "10.0"])]]
)
def test_whole_numbers_are_named_as_such_whatever_their_type(values: list[Any], tmp_path: Path) -> None:
    assert deal(write_parquet(tmp_path / "a.parquet", values)).ids == ("9", "10", "100")


def test_categories_and_bytes_in_parquet_are_texts(tmp_path: Path) -> None:
    for column in (pyarrow.array(CLIENTS).dictionary_encode(), pyarrow.array([name.encode() for name in CLIENTS])):
        pyarrow.parquet.write_table(pyarrow.table({"client": column}), tmp_path / "a.parquet")
        assert deal(tmp_path / "a.parquet").ids == ("site1", "site2", "site10")


def test_a_parquet_column_is_not_taken_for_another_that_begins_with_its_name(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"client.row": range(5), "client": CLIENTS}), tmp_path / "a.parquet")
    assert deal(tmp_path / "a.parquet").ids == ("site1", "site2", "site10")


@pytest.mark.parametrize("tail", ["", "\n", "\n\n", " \n", "\r\n\r\n", ",\n,\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_byte_order_marks_and_blank_lines_at_the_end_are_no_obstacle(
    end: str, mark: str, tail: str, tmp_path: Path
) -> None:
    lines = ["client,row", *(f"{name},{row}" for row, name in enumerate(CLIENTS))]
    (tmp_path / "a.csv").write_bytes((mark + end.join(lines) + end + tail).encode())
    assert deal(tmp_path / "a.csv").owners.tolist() == [2, 1, 1, 2, 0]


def test_blanks_around_a_columns_name_and_the_case_of_the_suffix_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.CSV").write_text("row, client \n" + "".join(f"0,{name}\n" for name in CLIENTS))
    pyarrow.parquet.write_table(pyarrow.table({" client ": CLIENTS}), tmp_path / "a.PARQUET")
    for file in ("a.CSV", "a.PARQUET"):
        assert deal(tmp_path / file).ids == ("site1", "site2", "site10")


def test_a_missing_file_says_where_it_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"absent.csv' does not exist; set it to the file .* starts in {Path.cwd()}\)"):
        deal(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder.csv' is not a file"):
        deal(tmp_path / "folder.csv")


def test_another_kind_of_file_or_column_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a.xlsx' is neither .csv nor .parquet; save it as one"):
        deal(tmp_path / "a.xlsx")
    for path in (write_csv(tmp_path / "a.csv"), write_parquet(tmp_path / "a.parquet", CLIENTS)):
        with pytest.raises(
            ConfigError, match=r"has no column 'owner' \(partition.column\); choose one of: row, client"
        ):
            deal(path, column="owner")
        with pytest.raises(ConfigError, match=r"has no column 'clients' .*did you mean 'client'"):
            deal(path, column="clients")


def test_many_rows_are_read_fast(tmp_path: Path) -> None:
    import time

    path = write_csv(tmp_path / "a.csv", [f"device-{row % 20_000}" for row in range(200_000)])
    start = time.perf_counter()
    dealt = deal(path, samples=200_000)
    assert time.perf_counter() - start < 3
    assert len(dealt.ids) == 20_000
