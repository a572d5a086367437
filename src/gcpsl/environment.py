"""What a run was made with: versions, machine and commit, for its folder."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("gcpsl", "torch", "numpy", "pydantic", "scikit-learn", "safetensors")


def describe() -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "commit": _commit(),
        "launch": launch(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda,
    }


def launch() -> str | None:
    """What names all attempts of one torchrun, or None without it."""
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{run} of process {os.getppid()}" if run == "none" else run


def _commit() -> str | None:
    """The commit of the source tree this package runs from, or None for an installed package.

    `$GCPSL_COMMIT` names it where the tree was copied to a machine without its history.
    """
    if told := os.environ.get("GCPSL_COMMIT"):
        return told
    source = Path(__file__).parent
    git = ("git", "-C", str(source))
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True)
        if source != Path(top.stdout.strip()) / "src" / "gcpsl":
            return None
        shown = [*git, "describe", "--always", "--dirty", "--abbrev=40"]
        return subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
