"""Ctrl-C where ranks take every round together: all stop after the same one, and any number of ranks goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SETTINGS = [
    "model.name=mlp", "partition.clients=24", "train.epochs=3", "run.name=run", "runtime.timeout_s=30",
    "schedule.draw=all", "schedule.synchronise=step",
]  # fmt: skip


def test_ranks_in_lockstep_stop_within_an_epoch_and_go_on_in_one_process(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    gcpsl = [sys.executable, "-m", "gcpsl"]
    calm, stopped = tmp_path / "calm", tmp_path / "stopped"
    for folder in (calm, stopped):
        folder.mkdir()
    train = [*gcpsl, "train", *SETTINGS]
    subprocess.run(train, cwd=calm, env=environment, check=True, capture_output=True)
    process = subprocess.Popen([*train, "runtime.slots=2"], cwd=stopped, env=environment, stderr=subprocess.PIPE)
    run = stopped / "runs" / "run"
    deadline = time.monotonic() + 60
    while not (run / "assignment.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    epochs = (run / "epochs.jsonl").read_text().splitlines() if (run / "epochs.jsonl").exists() else []
    assert len(epochs) < 3
    subprocess.run([*gcpsl, "runs", "resume", "run"], cwd=stopped, env=environment, check=True, capture_output=True)
    assert (run / "model.safetensors").read_bytes() == (calm / "runs" / "run" / "model.safetensors").read_bytes()
