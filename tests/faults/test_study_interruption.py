"""A study that is killed, or stopped by Ctrl-C, goes on where it was; one killed run doesn't stop the others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

import gcpsl
from gcpsl import cli
from gcpsl.studies.tasks import is_claimed

SETTINGS = "train.epochs = 16\npartition.clients = 16\nschedule.workloads = 2\nrun.checkpoint_every_s = 0.05\n"
GRID = f"seeds = [0]\n[settings]\n{SETTINGS}[rows.a]\n[rows.b]\ntrain.epochs = 2\n"
WORDS = ["study", "run", "grid.toml", "--jobs", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path


def log() -> Path:
    """Of the run that is trained first."""
    return min(Path("runs/study-logs").glob("*.log"), key=lambda path: path.stat().st_ctime)


def epochs() -> int:
    return sum(file.read_bytes().count(b"\n") for file in Path("runs").glob("*/epochs.jsonl"))


def wait_for(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not met():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.01)


def study(after_epochs: int | None = None, act: Callable[[], None] = lambda: None) -> Result:
    """`gcpsl study run` in this process, disturbed once when so many more epochs are done."""
    goal = epochs() + (after_epochs or 0)

    def disturb() -> None:
        wait_for(lambda: epochs() > goal)
        act()

    disturber = threading.Thread(target=disturb)
    if after_epochs is not None:
        disturber.start()
    result = CliRunner().invoke(cli.app, WORDS)
    if after_epochs is not None:
        disturber.join()
    return result


def kill_the_run() -> None:
    begun = re.findall(r"^== begun .* process (\d+)$", log().read_text(), re.M)
    os.kill(int(begun[-1]), signal.SIGKILL)


def test_killed_and_stopped_a_study_ends_with_the_models_of_an_undisturbed_one() -> None:
    killed = subprocess.Popen([sys.executable, "-m", "gcpsl", *WORDS])
    wait_for(lambda: epochs() > 2)
    killed.kill()
    killed.wait()
    wait_for(lambda: not is_claimed(log()))  # its run stops by itself

    result = study(2, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert result.exit_code == 130, result.output
    assert re.search(r"^a seed 0: goes on after epoch \d+/16$", result.output, re.M)
    assert re.search(r"^a seed 0: stopped in epoch \d+/16$", result.output, re.M)
    assert result.output.endswith("Stopped; 2 runs are left. The same command goes on.\n")

    result = study(1, kill_the_run)
    assert "a seed 0: FAILED: its process was ended by SIGKILL" in result.output
    assert "b seed 0: finished" in result.output
    assert "1 of 2 runs failed" in str(result.exception)

    assert study().output.endswith("All 2 runs have finished.\n")
    (path,) = Path("runs").glob("a-seed-0-*")
    words = [word.replace(" ", "") for word in SETTINGS.splitlines()]
    whole = gcpsl.train(None, *words, "run.root=whole").path
    mine, other = (load_file(folder / "model.safetensors") for folder in (path, whole))
    assert all(torch.equal(mine[name], other[name]) for name in other)
