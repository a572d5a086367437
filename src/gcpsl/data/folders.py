"""Where data lies: the root that applies, the file below it that shows a data set is there, and how to get it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from gcpsl.errors import DataError


def data_root(root: Path | None) -> Path:
    """`data.root`, else $GCPSL_DATA, else ~/.cache/gcpsl/data."""
    return (root or Path(os.environ.get("GCPSL_DATA") or "~/.cache/gcpsl/data")).expanduser()


def get_command(name: str, root: Path, folder: str) -> str:
    """What puts data set `name` where it is found from `root`: in its `folder` there, or in `root` if that is it."""
    return f"`gcpsl data get {name} --root {shlex.quote(str(root.parent if root.name == folder else root))}`"


def locate(name: str, root: Path, markers: Sequence[str], get: str) -> Path:
    """The first of `markers`, paths below `root`, that is a file; `get` is the command that brings them."""
    for marker in markers:
        if (root / marker).is_file():
            return root / marker
    found = "holds none of these files" if root.is_dir() else "does not exist"
    raise DataError(
        f"no {name} data: the folder '{root}' {found} ({', '.join(markers)}); run {get}, "
        "or set data.root to the folder that has them"
    )
