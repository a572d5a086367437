"""The generated pages are up to date, and the run folder's page describes every field."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gcpsl import cli, reference
from gcpsl.config import settings
from gcpsl.records import EpochRecord, Summary, TargetResult

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("name", "page"), [("settings.md", reference.settings_page), ("cli.md", reference.cli_page)])
def test_generated_pages_are_up_to_date(name: str, page: object) -> None:
    assert callable(page)
    assert (DOCS / name).read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_setting_has_a_row_with_its_meaning() -> None:
    text = reference.settings_page()
    for key, section, name in settings():
        (row,) = re.findall(rf"^\| `{re.escape(key)}` \| (.*)$", text, re.M)
        assert section.model_fields[name].description in row


def test_every_verb_has_its_help() -> None:
    helps = dict(reference.helps())
    assert {"gcpsl", "gcpsl train", "gcpsl plan", "gcpsl runs resume", "gcpsl data get"} < helps.keys()
    for name, text in helps.items():
        if "Commands:" not in text:  # those lists are cut off at the terminal's width
            shown = CliRunner().invoke(cli.app, [*name.split()[1:], "--help"], prog_name="gcpsl").output
            assert shown.split() == text.split()


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "integer", "minimum": 1}, "whole number >= 1"),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, "number >= 0 and < 1"),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}, "`a`, `b`, or `none`"),
        ({"type": "array", "items": {"const": "a"}}, "list of: `a`"),
        ({"type": "string", "format": "path"}, "path"),
        ({"type": "boolean"}, "`true`, `false`"),
    ],
)
def test_values_are_named_from_the_schema(schema: dict[str, object], shown: str) -> None:
    assert reference.values(schema) == shown


def test_both_pages_are_written_into_a_folder(tmp_path: Path) -> None:
    reference.main([str(tmp_path)])
    assert (tmp_path / "settings.md").read_text(encoding="utf-8") == reference.settings_page()
    assert (tmp_path / "cli.md").read_text(encoding="utf-8") == reference.cli_page()
    with pytest.raises(SystemExit, match="an existing folder"):
        reference.main([str(tmp_path / "nowhere")])


@pytest.mark.parametrize(
    ("heading", "record"),
    [("## epochs.jsonl", EpochRecord), ("## summary.json", Summary), ("Each entry of `targets`", TargetResult)],
)
def test_the_runs_page_describes_exactly_the_fields_that_there_are(heading: str, record: type) -> None:
    _, _, rest = (DOCS / "runs.md").read_text(encoding="utf-8").partition(heading)
    table = re.search(r"^\| field .*?\n\n", rest, re.M | re.S)
    assert table is not None
    described = [name for row in re.findall(r"^\| (`.*?) \|", table[0], re.M) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(described) == sorted(field.name for field in fields(record))
