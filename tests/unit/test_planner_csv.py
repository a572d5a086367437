"""A fleet's CSV is read whichever program wrote it, or the file says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gcpsl.errors import DataError
from gcpsl.planner_csv import fleet_from_csv


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks_are_no_obstacle(end: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_bytes((mark + end.join(["client,count,cat", "é,3,3", "", " , ,", "a,4,4", ""])).encode())
    assert fleet_from_csv(path).ids == ("é", "a")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("client,count\na,3\n".encode("utf-16"), "it is UTF-16; save it as UTF-8"),
        ("client,count\na,3\n".encode("utf-16-le"), "it is not UTF-8 text; save it as UTF-8"),
        ("client,count\né,3\n".encode("latin1"), "it is not UTF-8 text; save it as UTF-8"),
        (b'client,count\n"a,' + b"3" * 200_000, "in line 2; look for a quotation mark"),
    ],
)
def test_another_encoding_says_what_to_do(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"can't read '.*fleet.csv' as CSV: .*{says}"):
        fleet_from_csv(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"can't read '.*': Is a directory"):
        fleet_from_csv(tmp_path)
