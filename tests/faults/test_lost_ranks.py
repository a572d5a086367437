"""Ranks that die or hang at scripted moments: all start again, and the run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SETTINGS = ["model.name=mlp", "partition.clients=24", "train.epochs=4", "run.checkpoint_every_s=0", "run.name=run"]
TIMES = ("_s", "speedup_real")
SCRIPTED = str(Path(__file__).parent / "scripted.py")


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"} | more


def torchrun(
    ranks: int, restarts: int, arguments: list[str], cwd: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    return subprocess.run(
        [*command, SCRIPTED, "train", *SETTINGS, *arguments],
        cwd=cwd, env=environment(MARKS=str(cwd), **env), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run in one process."""
    cwd = tmp_path_factory.mktemp("calm")
    subprocess.run([sys.executable, "-m", "gcpsl", "train", *SETTINGS], cwd=cwd, env=environment(), check=True)
    return cwd / "runs" / "run"


def ends_as(calm: Path, run: Path) -> None:
    for name in ("model.safetensors", "best.safetensors"):
        assert (run / name).read_bytes() == (calm / name).read_bytes()
    ours, theirs = (
        [{k: v for k, v in json.loads(line).items() if not k.endswith(TIMES)} for line in text.splitlines()]
        for text in ((run / "epochs.jsonl").read_text(), (calm / "epochs.jsonl").read_text())
    )
    assert ours == theirs


@pytest.mark.parametrize("script", ["1 2 7 kill", "0 3 1 kill", "1 3 -1 kill"])
def test_a_killed_rank_changes_nothing(script: str, calm: Path, tmp_path: Path) -> None:
    done = torchrun(2, 1, [], tmp_path, SCRIPT=script)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "failed").exists()
    ends_as(calm, tmp_path / "runs" / "run")


def test_a_rank_that_hangs_is_named_and_the_run_goes_on_with_another_number_of_ranks(
    calm: Path, tmp_path: Path
) -> None:
    done = torchrun(2, 0, ["runtime.timeout_s=3"], tmp_path, SCRIPT="1 2 3 stop")
    assert done.returncode != 0
    assert "rank 1 didn't come to the barrier after round" in done.stderr
    assert "of epoch 2 within 3 s" in done.stderr
    command = [sys.executable, "-m", "gcpsl", "runs", "resume", "run"]
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True)
    ends_as(calm, tmp_path / "runs" / "run")


def test_slots_are_started_and_started_again(calm: Path, tmp_path: Path) -> None:
    arguments = ["train", *SETTINGS, "runtime.slots=3", "run.checkpoint_every_s=0", "train.epochs=30"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gcpsl", *arguments], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    log = tmp_path / "runs" / "run" / "epochs.jsonl"
    wait_until(lambda: log.is_file() and len(log.read_text().splitlines()) >= 2)
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
    )
    os.kill(int(children.stdout.split()[-1]), signal.SIGKILL)
    lines_before = len(log.read_text().splitlines())
    wait_until(lambda: len(log.read_text().splitlines()) > lines_before)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "ended by signal 9; all start again" in said
    assert process.returncode == 130
    command = [sys.executable, "-m", "gcpsl", "runs", "show", "run", "--json"]
    shown = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert shown["status"] == "interrupted"
    firsts = [json.loads(line)["loss"] for line in (calm / "epochs.jsonl").read_text().splitlines()]
    assert [epoch["loss"] for epoch in shown["epochs"]][:4] == firsts[: len(shown["epochs"])]


def test_what_starting_again_cannot_mend_ends_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gcpsl", "train", "runtime.slots=2", "data.name=npz", "data.root=missing.npz"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "start again" not in done.stderr


def wait_until(ready: object, timeout_s: float = 60) -> None:
    assert callable(ready)
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)
