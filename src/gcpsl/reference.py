"""`docs/settings.md` and `docs/cli.md`, made from the settings' descriptions and the program's own help.

`python -m gcpsl.reference FOLDER` writes both; a test keeps the stored ones true. Knows nothing of what settings do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from gcpsl.cli import app
from gcpsl.config import presets, settings

HELP_COLUMNS = 90
NAMES = {
    "boolean": "`true`, `false`",
    "integer": "whole number",
    "null": "`none`",
    "number": "number",
    "string": "text",
}

SETTINGS_INTRO = """\
# Settings

This page is generated from the program: `make docs` writes it anew.

A run is described by one TOML file, or by a preset's name, and `key=value` after it changes single settings. What is
in neither keeps the default below. `key=none` clears an optional setting. Unknown keys and values out of range are
refused before anything starts.
"""

PRESETS_INTRO = """\
## Presets

A preset's name stands where a file could: `gcpsl train paper-real schedule.workloads=8`.
"""

CLI_INTRO = """\
# The command line

This page is generated from the program: `make docs` writes it anew.

Exit codes: 0 done, 2 a wrong setting or command, 3 data that is missing or damaged, 4 a run that can't be started,
continued or read, 5 another rank of it that died or hangs, 130 stopped by Ctrl-C or SIGTERM. Error messages go to
standard error, in one line where one will do.
"""


def settings_page() -> str:
    """Every setting with its values, default and meaning, a table per section, and the presets."""
    parts = [SETTINGS_INTRO]
    for section, members in groupby(settings(), key=lambda entry: entry[0].rpartition(".")[0]):
        rows = [_setting_row(key, model.model_json_schema()["properties"][name]) for key, model, name in members]
        title = f"## {section}" if section else "## The run as a whole"
        parts.append(
            "\n".join([title, "", "| setting | values | default | meaning |", "| --- | --- | --- | --- |", *rows, ""])
        )
    parts.append(PRESETS_INTRO)
    for name in presets():
        text = (resources.files("gcpsl") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
        parts.append(f"### {name}\n\n```toml\n{text}```\n")
    return "\n".join(parts)


def cli_page() -> str:
    """What `--help` prints for the program and every verb."""
    parts = [CLI_INTRO]
    for name, text in helps():
        parts.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def helps() -> Iterator[tuple[str, str]]:
    """Every verb, beginning with the program itself, and its help at a fixed width."""
    yield from _helps(typer.main.get_command(app), "gcpsl")


def values(schema: dict[str, Any]) -> str:
    """The values that a setting takes, from its JSON schema."""
    match schema:
        case {"anyOf": parts}:
            shown = ", or ".join(values(part) for part in parts)
        case {"enum": choices}:
            shown = ", ".join(f"`{choice}`" for choice in choices)
        case {"const": only}:
            shown = f"`{only}`"
        case {"type": "array", "items": items}:
            shown = f"list of: {values(items)}"
        case {"type": "string", "format": "path"}:
            shown = "path"
        case {"type": ("integer" | "number") as kind}:
            shown = NAMES[kind] + _bounds(schema)
        case _:
            shown = NAMES[schema["type"]]
    return shown


def _setting_row(key: str, schema: dict[str, Any]) -> str:
    default = schema["default"]
    shown = "none" if default is None else default if isinstance(default, str) else json.dumps(default)
    return f"| `{key}` | {values(schema)} | `{shown}` | {schema['description']} |"


def _bounds(schema: dict[str, Any]) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[name]:g}" for name, sign in signs.items() if name in schema]
    return " " + " and ".join(bounds) if bounds else ""


def _helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    context = command.make_context(
        name, ["--help"], resilient_parsing=True, terminal_width=HELP_COLUMNS, max_content_width=HELP_COLUMNS
    )
    yield name, command.get_help(context)
    for verb, child in getattr(command, "commands", {}).items():
        yield from _helps(child, f"{name} {verb}")


def main(words: list[str]) -> None:
    if len(words) != 1 or not Path(words[0]).is_dir():
        sys.exit("usage: python -m gcpsl.reference FOLDER, an existing folder for settings.md and cli.md")
    for name, page in (("settings.md", settings_page()), ("cli.md", cli_page())):
        (Path(words[0]) / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
