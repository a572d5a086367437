"""The folder that a report is written into: it writes over what an earlier report wrote there, and nothing else.

`report.json` lists the files, so that they are known again; files of an earlier report that are no longer made go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from gcpsl.errors import ConfigError

MANIFEST, PAGE = "report.json", "index.html"
FOLDERS = ("tables", "figures")


def prepare(folder: Path) -> None:
    """Makes the folder; raises where a report can't be written, before any work is done for it."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"'{folder}' is a file; name a folder for the report with -o")
    _refuse_others(folder, [PAGE, MANIFEST], _earlier(folder))
    with _refused(folder):
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)


def write(folder: Path, files: Mapping[str, bytes], about: Mapping[str, object]) -> None:
    """All files by their names below the folder, and the list of them."""
    prepare(folder)
    earlier = _earlier(folder)
    _refuse_others(folder, [*files, MANIFEST], earlier)
    listed = {**about, "files": sorted(files)}
    content = json.dumps(listed, indent=2, ensure_ascii=False).encode() + b"\n"
    with _refused(folder):
        for name in earlier - {MANIFEST} - set(files):
            (folder / name).unlink(missing_ok=True)
        # the list first, so that whatever is interrupted is known as ours
        (folder / MANIFEST).write_bytes(content)
        for name, text in files.items():
            (folder / name).write_bytes(text)


@contextmanager
def _refused(folder: Path) -> Iterator[None]:
    """What the system refuses is an error that names the folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"can't write the report to '{folder}': {error.strerror or error}; name a folder that you may write to"
        ) from None


def _earlier(folder: Path) -> set[str]:
    """The names of what an earlier report wrote here."""
    try:
        listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        names = {str(name) for name in listed["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {MANIFEST, *(name for name in names if _is_ours(PurePosixPath(name)))}


def _is_ours(name: PurePosixPath) -> bool:
    """No list may name a file elsewhere."""
    return str(name) == PAGE or (len(name.parts) == 2 and name.parts[0] in FOLDERS and ".." not in name.parts)


def _refuse_others(folder: Path, names: list[str], earlier: set[str]) -> None:
    others = [name for name in names if name not in earlier and (folder / name).exists()]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise ConfigError(
            f"'{folder}' holds '{others[0]}'{more}, which no report wrote; move it, or name another folder with -o"
        )
