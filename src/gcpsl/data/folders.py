"""Where data lies: the root that applies, and the file below it that shows a data set is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gcpsl.errors import DataError


def data_root(root: Path | None) -> Path:
    """`data.root`, else $GCPSL_DATA, else ~/.cache/gcpsl/data."""
    return (root or Path(os.environ.get("GCPSL_DATA") or "~/.cache/gcpsl/data")).expanduser()


def locate(name: str, root: Path, markers: Sequence[str]) -> Path:
    """The first of `markers`, paths below `root`, that is a file."""
    for marker in markers:
        if (root / marker).is_file():
            return root / marker
    found = "holds none of these files" if root.is_dir() else "does not exist"
    raise DataError(
        f"no {name} data: the folder '{root}' {found} ({', '.join(markers)}); run `gcpsl data get {name}`, "
        "or set data.root to the folder that has them"
    )
