"""What the pages show is true: their Python runs, their commands work, their settings, files and links exist.

A page is played from top to bottom in an empty folder. How its blocks are marked:

- `python` is run, and prints what an `output` block after it shows; `python NAME.py`, `toml NAME.toml` and the like
  are written to a file of that name.
- `console` has commands after `$`, which are run, and what they print: every line shown must be printed, in this order
  and but for numbers, dates and spacing. A line `...` says that some are left out; other blocks of output are `text`.
- `sh` has commands that need what a test lacks (real data, an interrupted run). They are only checked.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gcpsl import cli
from gcpsl import config as configs
from gcpsl.errors import GcpslError
from gcpsl.studies.own import find_study

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
COLUMNS = "100"
MAKE_TRAIN = "gcpsl train"
SECTIONS = "|".join(name for name in configs.Config.model_fields if name != "seed")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@dataclass(frozen=True)
class Block:
    language: str
    file: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    for language, file, text in re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", page.read_text(), re.M | re.S):
        yield Block(language, file, text)


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def inline_code(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def exchanges(block: Block) -> Iterator[tuple[str, list[str]]]:
    """A console block's commands, each with the lines it is shown to print."""
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, *output = part.splitlines()
        yield command, output


def masked(line: str) -> str:
    """What must agree from one machine and moment to another."""
    return re.sub(r"[\d.,:%-]*\d[\d.,:%-]*( s\b)?|\s+|\b[kMGT]?B\b", "", line)


def gcpsl_words(command: str) -> list[str] | None:
    """The words after `gcpsl`; None for a command that is not ours."""
    words = shlex.split(command, comments=True)
    if command == "make train":
        words = shlex.split(MAKE_TRAIN)
    return words[1:] if words[:1] == ["gcpsl"] else None


def run_python(text: str, names: dict[str, object]) -> list[str]:
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, "a python block", "exec"), names)
    return printed.getvalue().splitlines()


def run_command(command: str) -> list[str]:
    words = gcpsl_words(command)
    assert words is not None, f"`{command}` can't be run by a test: show it in a `sh` block"
    result = CliRunner().invoke(cli.app, words)
    if isinstance(result.exception, GcpslError):
        return [f"gcpsl: {result.exception}"]
    assert result.exit_code == 0, (words, result.output, result.exception)
    return result.output.splitlines()


def check_shown(command: str, shown: list[str], lines: list[str]) -> None:
    """Every line shown is among those printed, in their order; all of them, unless `...` says otherwise."""
    left = [masked(line) for line in lines]
    for line in shown:
        if line.strip() != "..." and not line.startswith(".venv/bin/"):
            assert masked(line) in left, f"`{command}` does not print the line: {line}"
            del left[: left.index(masked(line)) + 1]
    if "..." not in [line.strip() for line in shown]:
        shown_count = sum(1 for line in shown if line.strip() and not line.startswith(".venv/bin/"))
        assert shown_count == sum(1 for line in lines if line.strip()), f"`{command}` prints more than is shown"


@each_page
def test_a_page_plays_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", COLUMNS)
    monkeypatch.delenv("GCPSL_DATA", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    names: dict[str, object] = {"__name__": "__main__"}
    printed_by_python: list[str] = []
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
        elif block.language == "python":
            printed_by_python = run_python(block.text, names)
        elif block.language == "output":
            check_shown("the Python above", block.text.splitlines(), printed_by_python)
        elif block.language == "console":
            for command, shown in exchanges(block):
                check_shown(command, shown, run_command(command))


@each_page
def test_commands_that_are_not_run_parse_and_their_settings_are_valid(page: Path) -> None:
    lines = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    commands = [code for code in inline_code(page) if re.match(r"gcpsl( [\w-]+)* [\w-]*[=/-]", code)]
    for command in [*lines, *commands]:
        words = gcpsl_words(command)
        if words is None or "FILE" in command or "FOLDER" in command:
            continue
        verb = typer.main.get_command(cli.app)
        while hasattr(verb, "commands"):
            assert words[0] in verb.commands, f"`{command}`: no verb {words[0]}"
            verb, words = verb.commands[words[0]], words[1:]
        context = verb.make_context(command, list(words))
        settings = context.params.get("settings") or []
        files = [word for word in settings if "=" not in word and word not in configs.presets()]
        assert not files, f"`{command}` reads {files}, which the page does not make: run it in a console block"
        cli._load(list(settings))


@each_page
def test_every_setting_named_exists(page: Path) -> None:
    known = {key for key, _, _ in configs.settings()}
    shown = [block.text for block in blocks(page) if block.language in ("console", "sh")]
    for text in [*inline_code(page), *shown]:
        for key in re.findall(rf"(?<![\w./-])((?:{SECTIONS})\.[a-z_]+)(?![\w(:/])", text):
            is_file = key.rpartition(".")[2] in ("py", "toml", "json", "jsonl", "safetensors", "csv")
            assert is_file or key in known, f"{key} in: {text}"


@each_page
def test_settings_shown_together_are_valid_together(page: Path) -> None:
    for code in inline_code(page):
        words = code.split()
        if all(re.fullmatch(rf"(?:{SECTIONS})\.[a-z_]+=\S+", word) for word in words):
            configs.load("paper-real", words)


@each_page
def test_toml_blocks_are_valid_configs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language == "toml":
            (tmp_path / "shown.toml").write_text(block.text)
            is_study = re.search(r"^\[(axes|rows)", block.text, re.M)
            (find_study if is_study else configs.load)(str(tmp_path / "shown.toml"))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.is_file(), target
        headings = re.findall(r"^#+ (.*)$", prose(linked), re.M) if anchor else []
        anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in anchors, target


@each_page
def test_files_of_the_project_that_are_named_exist(page: Path) -> None:
    for code in inline_code(page):
        if re.fullmatch(r"(src|tests|docs|benchmarks)/[\w./-]+", code):
            assert (ROOT / code).exists(), code


@each_page
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    shown = [line.removeprefix("$ ") for block in blocks(page) for line in block.text.splitlines()]
    for text in [*inline_code(page), *shown]:
        named = re.fullmatch(r"make ([a-z]+)", text)
        assert not named or named[1] in targets, text


def test_make_train_is_the_command_that_the_readme_shows() -> None:
    assert f"$(BIN)/{MAKE_TRAIN}\n" in (ROOT / "Makefile").read_text()
