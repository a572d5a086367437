"""Killed or stopped at any moment, a run resumes to the result it would have had."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gcpsl.runs import RunFolder

SETTINGS = (
    "partition.clients=16",
    "schedule.workloads=2",
    "schedule.batch_size=16",
    "schedule.synchronise=7",
    "train.epochs=8",
    "runtime.threads=1",
)
OFTEN = "run.checkpoint_every_s=0.01"
NEVER = "run.checkpoint_every_s=1000"
TIMES = ("_s", "speedup_real")


def gcpsl(*words: str) -> list[str]:
    return [sys.executable, "-m", "gcpsl", *words]


def train_words(root: Path, checkpoints: str) -> list[str]:
    return gcpsl("train", f"run.root={root}", "run.name=run", checkpoints, *SETTINGS)


def outcome(path: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """The model, and the epochs without what time says."""
    epochs = RunFolder(path).epochs()
    timeless = [{k: v for k, v in epoch.items() if not k.endswith(TIMES)} for epoch in epochs]
    return load_file(path / "model.safetensors"), timeless


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    subprocess.run(train_words(root, NEVER), check=True, capture_output=True)
    return root / "run"


def assert_same(path: Path, uninterrupted: Path) -> None:
    model, epochs = outcome(path)
    expected_model, expected_epochs = outcome(uninterrupted)
    assert epochs == expected_epochs
    assert model.keys() == expected_model.keys()
    assert all(torch.equal(model[name], expected_model[name]) for name in model)
    best, expected_best = (load_file(p / "best.safetensors") for p in (path, uninterrupted))
    assert all(torch.equal(best[name], expected_best[name]) for name in expected_best)


def rounds_kept(path: Path) -> int:
    """How far a run in this folder has come for good: the rounds of its newest checkpoint."""
    return max(
        (int(made.parent.name.removeprefix("rounds-")) for made in path.glob("checkpoints/*/manifest.json")), default=0
    )


def epochs_logged(path: Path) -> int:
    log = path / "epochs.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def wait_until_it_trains(process: subprocess.Popen[bytes], progress: Callable[[], int], past: int) -> None:
    """Until the process has made the progress of a folder go past where it may have stood before."""
    deadline = time.monotonic() + 60
    while progress() <= past:
        assert process.poll() is None, "the run ended before it was seen to train"
        assert time.monotonic() < deadline, "the run does not train"
        time.sleep(0.002)


def test_killed_at_random_moments_a_run_ends_bit_identical(uninterrupted: Path, tmp_path: Path) -> None:
    moments = random.Random(0)
    path = tmp_path / "run"
    words = train_words(tmp_path, OFTEN)
    for _ in range(5):
        goal = rounds_kept(path) + moments.randrange(40)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_it_trains(process, partial(rounds_kept, path), goal)
        time.sleep(moments.uniform(0, 0.02))
        process.kill()
        assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
        words = gcpsl("runs", "resume", str(path))
    subprocess.run(words, check=True, capture_output=True)
    assert_same(path, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_writes_a_checkpoint_inside_the_epoch_and_says_how_to_go_on(
    number: signal.Signals, uninterrupted: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(train_words(tmp_path, NEVER), stdout=subprocess.PIPE, env=environment)
    wait_until_it_trains(process, partial(epochs_logged, path), 0)
    assert not rounds_kept(path)
    process.send_signal(number)
    output = process.communicate()[0].decode()
    assert process.returncode == 130, output
    assert f"gcpsl runs resume {path}" in output
    name = RunFolder(path).newest_checkpoint()
    assert name is not None
    assert RunFolder(path).load_checkpoint(name).meta["progress"] is not None
    subprocess.run(gcpsl("runs", "resume", str(path)), check=True, capture_output=True)
    assert_same(path, uninterrupted)


def test_a_run_goes_on_when_nobody_reads_its_output(uninterrupted: Path, tmp_path: Path) -> None:
    words = train_words(tmp_path, NEVER)
    for mode in ([], ["--json"]):
        process = subprocess.Popen([*words, *mode], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 0
        assert_same(tmp_path / "run", uninterrupted)
        shutil.rmtree(tmp_path / "run")
