"""A report's folder: what an earlier report wrote is replaced, and nobody else's file is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gcpsl.errors import ConfigError
from gcpsl.report.folder import write

FIRST = {"tables/a.md": b"a", "figures/a.png": b"a", "index.html": b"a"}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_an_earlier_report_wrote_is_replaced_or_goes(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "report"
    write(folder, FIRST, {})
    write(folder, {"tables/b.md": b"b", "index.html": b"b"}, {"left_out": []})
    assert files(folder) == {"tables/b.md", "index.html", "report.json"}
    assert (folder / "index.html").read_bytes() == b"b"
    assert json.loads((folder / "report.json").read_text())["files"] == ["index.html", "tables/b.md"]


def test_other_files_stay_and_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "mine.md").write_text("mine")
    write(tmp_path, FIRST, {})
    assert (tmp_path / "tables" / "mine.md").read_text() == "mine"
    with pytest.raises(ConfigError, match=r"holds 'tables/mine.md', which no report wrote; move it, or name another"):
        write(tmp_path, {"tables/mine.md": b"x"}, {})
    assert (tmp_path / "tables" / "mine.md").read_text() == "mine"
    assert files(tmp_path) == {*FIRST, "tables/mine.md", "report.json"}


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "tables/../../outside", "mine.md", "figures/a/b"])
def test_a_list_of_files_that_someone_changed_removes_nothing_elsewhere(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    write(folder, FIRST, {})
    (tmp_path / "outside").touch()
    (folder / "mine.md").touch()
    (folder / "report.json").write_text(json.dumps({"files": [*FIRST, name]}))
    write(folder, FIRST, {})
    assert (tmp_path / "outside").exists()
    assert (folder / "mine.md").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"can't write the report to .* name a folder that you may write to"):
        write(tmp_path / "file" / "report", FIRST, {})


def test_somebody_elses_list_is_not_a_reports(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"mine": 1}')
    with pytest.raises(ConfigError, match=r"holds 'report.json', which no report wrote"):
        write(tmp_path, FIRST, {})
