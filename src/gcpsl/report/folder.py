"""The folder that a report is written into: it writes over what an earlier report wrote there, and nothing else.

`report.json` lists the files, so that they are known again; files of an earlier report that are no longer made go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from gcpsl.errors import ConfigError

MANIFEST = "report.json"
FOLDERS = ("tables", "figures")


def write(folder: Path, files: Mapping[str, bytes], about: Mapping[str, object]) -> None:
    """All files by their names below the folder, and the list of them, last."""
    earlier = _earlier(folder)
    _refuse_others(folder, [*files, MANIFEST], earlier)
    listed = {**about, "files": sorted(files)}
    content = json.dumps(listed, indent=2, ensure_ascii=False).encode() + b"\n"
    try:
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in earlier - {MANIFEST} - set(files):
            (folder / name).unlink(missing_ok=True)
        # the list first, so that whatever is interrupted is known as ours
        (folder / MANIFEST).write_bytes(content)
        for name, text in files.items():
            (folder / name).write_bytes(text)
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
    return str(name) == "index.html" or (len(name.parts) == 2 and name.parts[0] in FOLDERS and ".." not in name.parts)


def _refuse_others(folder: Path, names: list[str], earlier: set[str]) -> None:
    others = [name for name in names if name not in earlier and (folder / name).exists()]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise ConfigError(
            f"'{folder}' holds '{others[0]}'{more}, which no report wrote; move it, or name another folder with -o"
        )
