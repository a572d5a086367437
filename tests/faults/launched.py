"""Starts scripted runs on several ranks, and compares how they ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SETTINGS = ["model.name=mlp", "partition.clients=24", "train.epochs=4", "run.checkpoint_every_s=0", "run.name=run"]
TIMES = ("_s", "speedup_real")
SCRIPTED = str(Path(__file__).parent / "scripted.py")


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"} | more


def gcpsl(*words: str) -> list[str]:
    return [sys.executable, "-m", "gcpsl", *words]


def torchrun(cwd: Path, flags: list[str], arguments: list[str], **env: str) -> subprocess.Popen[str]:
    """`scripted.py train` below torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", *flags, SCRIPTED, "train", *SETTINGS, *arguments]
    own = environment(MARKS=str(cwd), PYTHONUNBUFFERED="1", **env)
    return subprocess.Popen(command, cwd=cwd, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ends_as(calm: Path, run: Path) -> None:
    for name in ("model.safetensors", "best.safetensors"):
        assert (run / name).read_bytes() == (calm / name).read_bytes()
    ours, theirs = (
        [{k: v for k, v in json.loads(line).items() if not k.endswith(TIMES)} for line in text.splitlines()]
        for text in ((run / "epochs.jsonl").read_text(), (calm / "epochs.jsonl").read_text())
    )
    assert ours == theirs


def wait_until(ready: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)
