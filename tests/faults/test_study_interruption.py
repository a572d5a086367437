"""A study stopped by Ctrl-C or killed goes on where it was, and one killed run doesn't stop the others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

import gcpsl
from gcpsl.studies.tasks import is_claimed

SETTINGS = "train.epochs = 24\npartition.clients = 16\nschedule.workloads = 2\nrun.checkpoint_every_s = 0.05\n"
GRID = f"seeds = [0]\n[settings]\n{SETTINGS}[rows.a]\n[rows.b]\noptimizer.lr = 0.03\n"


def study(cwd: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-u", "-m", "gcpsl", "study", "run", "grid.toml", "--jobs", "1"]
    return subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def epochs(cwd: Path) -> int:
    return sum(log.read_bytes().count(b"\n") for log in cwd.glob("runs/*/epochs.jsonl"))


def wait_for(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.01)


def ended(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=120)[0]


def test_stopped_or_killed_a_study_goes_on_to_the_same_models(tmp_path: Path) -> None:
    """Four starts: stopped by Ctrl-C, killed, its run killed, and at last left alone."""
    (tmp_path / "grid.toml").write_text(GRID)
    stopped = study(tmp_path)
    wait_for(lambda: epochs(tmp_path) > 3)
    stopped.send_signal(signal.SIGINT)
    output = ended(stopped)
    assert stopped.returncode == 130, output
    assert "a seed 0: stopped in epoch" in output
    assert output.endswith("Stopped; 2 runs are left. The same command goes on.\n")

    before = epochs(tmp_path)
    killed = study(tmp_path)
    wait_for(lambda: epochs(tmp_path) > before + 3)
    killed.kill()
    assert re.search(r"a seed 0: goes on after epoch \d+/24", ended(killed))
    (log,) = tmp_path.glob("runs/study-logs/*.log")
    wait_for(lambda: not is_claimed(log))  # its run stops by itself

    before = epochs(tmp_path)
    run_killed = study(tmp_path)
    wait_for(lambda: epochs(tmp_path) > before)
    os.kill(int(re.findall(r"^== begun .* process (\d+)$", log.read_text(), re.M)[-1]), signal.SIGKILL)
    output = ended(run_killed)
    assert run_killed.returncode == 4, output
    assert "a seed 0: FAILED: its process was ended by SIGKILL" in output
    assert "b seed 0: finished" in output

    assert ended(study(tmp_path)).endswith("All 2 runs have finished.\n")
    (path,) = tmp_path.glob("runs/a-seed-0-*")
    words = [word.replace(" ", "") for word in SETTINGS.splitlines()]
    whole = gcpsl.train(None, *words, f"run.root={tmp_path / 'whole'}", "runtime.threads=1").path
    mine, other = (load_file(folder / "model.safetensors") for folder in (path, whole))
    assert all(torch.equal(mine[name], other[name]) for name in other)
