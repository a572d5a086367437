"""Ranks that die or hang at scripted moments: all start again, and the run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from faults.launched import SETTINGS, ends_as, environment, free_port, gcpsl, torchrun, wait_until


def on_two_ranks(cwd: Path, restarts: int, arguments: list[str], script: str) -> tuple[int, str, str]:
    """The exit code, and what was printed and said."""
    flags = ["--nproc-per-node=2", f"--max-restarts={restarts}", f"--master-port={free_port()}"]
    process = torchrun(cwd, flags, arguments, SCRIPT=script)
    printed, said = process.communicate(timeout=180)
    return process.returncode, printed, said


@pytest.mark.parametrize("script", ["1 2 7 kill", "0 3 1 kill", "1 3 -1 kill"])
def test_a_killed_rank_changes_nothing(script: str, calm: Path, tmp_path: Path) -> None:
    code, printed, said = on_two_ranks(tmp_path, 1, [], script)
    assert code == 0, said
    assert (tmp_path / "failed").exists()
    ends_as(calm, tmp_path / "runs" / "run")
    assert re.search(r"\nResuming after epoch [12]\ndigits: ", printed), printed
    for message in ("UserWarning: scripted", "a scripted message"):
        assert sum(line.startswith("[rank 1] ") for line in said.splitlines() if message in line) == 2
        assert sum(not line.startswith("[rank") for line in said.splitlines() if message in line) == 2


def test_a_rank_that_hangs_is_named_and_the_run_goes_on_with_another_number_of_ranks(
    calm: Path, tmp_path: Path
) -> None:
    code, _, said = on_two_ranks(tmp_path, 0, ["runtime.timeout_s=3"], "1 2 3 stop")
    assert code != 0
    assert "rank 1 didn't come to the barrier after round" in said
    assert "of epoch 2 within 3 s" in said
    subprocess.run(gcpsl("runs", "resume", "run"), cwd=tmp_path, env=environment(), check=True)
    ends_as(calm, tmp_path / "runs" / "run")


def test_slots_are_started_and_started_again(calm: Path, tmp_path: Path) -> None:
    arguments = ["train", *SETTINGS, "runtime.slots=3", "run.checkpoint_every_s=0", "train.epochs=30"]
    process = subprocess.Popen(gcpsl(*arguments), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
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
    command = gcpsl("runs", "show", "run", "--json")
    shown = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert shown["status"] == "interrupted"
    firsts = [json.loads(line)["loss"] for line in (calm / "epochs.jsonl").read_text().splitlines()]
    assert [epoch["loss"] for epoch in shown["epochs"]][:4] == firsts[: len(shown["epochs"])]


def test_what_starting_again_cannot_mend_ends_at_once(tmp_path: Path) -> None:
    command = gcpsl("train", "runtime.slots=2", "data.name=npz", "data.root=missing.npz")
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "start again" not in done.stderr
