"""What the tests of lost ranks and hosts share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from faults.launched import SETTINGS, environment, gcpsl


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run in one process."""
    cwd = tmp_path_factory.mktemp("calm")
    words = gcpsl("train", *SETTINGS, "run.checkpoint_every_s=1000")
    subprocess.run(words, cwd=cwd, env=environment(), check=True)
    return cwd / "runs" / "run"
