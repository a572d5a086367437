"""How long the command line takes to answer: help, and a plan for 256 clients. The best of several whole processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import report

GCPSL = str(Path(sys.executable).with_name("gcpsl"))


def best_s(*words: str, repeats: int = 5) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run([GCPSL, *words], check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def fleet(path: Path, clients: int) -> None:
    """A fleet of ten classes, two of them on each client."""
    random = np.random.default_rng(0)
    lines = ["client,count," + ",".join(f"class{c}" for c in range(10))]
    for k in range(clients):
        histogram = np.zeros(10, dtype=int)
        histogram[random.choice(10, 2, replace=False)] = random.integers(20, 250, 2)
        lines.append(f"client{k},{histogram.sum()}," + ",".join(map(str, histogram)))
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    report("gcpsl --help", best_s("--help"), "s", "< 0.5")
    report("gcpsl plan, 64 clients of digits", best_s("plan"), "s", "< 1.5")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.csv"
        fleet(path, 256)
        report("gcpsl plan --fleet, 256 clients", best_s("plan", "paper-simulator", "--fleet", str(path)), "s", "< 1.5")


if __name__ == "__main__":
    main()
