"""Two hosts that share a run: network namespaces joined by a veth pair, then with 50 ms delay each way and 100 Mbit/s.

Needs root, iproute2 and, for the delay, the kernel's netem. Fusing once an epoch against averaging gradients every
round, small CNN on random 28x28 images: what each loses to the slow link, and that both hosts end with one process's
model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from harness import report

HOSTS = {"gcpsl-a": "10.77.0.1", "gcpsl-b": "10.77.0.2"}
SLOW = ["delay", "50ms", "rate", "100mbit"]
SAMPLES = {"epoch": 24_000, "step": 1_200}  # an epoch's; averaging over the slow link takes so long that few must do


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two namespaces with an address each, joined by a cable; both are gone afterwards."""
    first, second = HOSTS
    try:
        for name in HOSTS:
            ip("netns", "add", name)
        ip("link", "add", "cable-a", "netns", first, "type", "veth", "peer", "name", "cable-b", "netns", second)
        for (name, address), end in zip(HOSTS.items(), ("cable-a", "cable-b"), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], check=False)


def slow_down() -> bool:
    """Delay and limit both directions; False where the kernel can't."""
    ends = zip(HOSTS, ("cable-a", "cable-b"), strict=True)
    done = [
        subprocess.run(
            ["tc", "-n", name, "qdisc", "add", "dev", end, "root", "netem", *SLOW],
            check=False,
            stderr=subprocess.DEVNULL,
        )
        for name, end in ends
    ]
    return all(process.returncode == 0 for process in done)


def settings(folder: Path, regime: str, name: str, epochs: int) -> list[str]:
    extra = ["schedule.draw=all", "schedule.synchronise=step"] if regime == "step" else []
    data = ["data.name=npz", f"data.root={folder / regime}.npz", "data.validation_fraction=0"]
    run = [f"run.root={folder / 'runs'}", f"run.name={name}", f"train.epochs={epochs}", "run.checkpoint_every_s=600"]
    threads = ["runtime.threads=1", "runtime.timeout_s=120"]
    return [*data, "partition.clients=64", "schedule.workloads=2", "schedule.batch_size=64", *run, *threads, *extra]


def epoch_s(folder: Path, name: str, epochs: int) -> float:
    """Seconds per epoch, from the first to the last, whatever they were spent on."""
    summary = json.loads((folder / "runs" / name / "summary.json").read_text())
    return float((summary["wall_s"] - summary["setup_s"]) / epochs)


def on_both(folder: Path, regime: str, name: str, epochs: int) -> float:
    """Train on both hosts by torchrun."""
    first = next(iter(HOSTS.values()))
    processes = []
    for host, (namespace, end) in enumerate(zip(HOSTS, ("cable-a", "cable-b"), strict=True)):
        torchrun = [
            "--nnodes=2",
            "--nproc-per-node=1",
            f"--node-rank={host}",
            f"--master-addr={first}",
            "--master-port=29511",
        ]
        command = [sys.executable, "-m", "torch.distributed.run", *torchrun, "-m", "gcpsl", "train"]
        env = os.environ | {"GLOO_SOCKET_IFNAME": end, "OMP_NUM_THREADS": "1"}
        words = ["ip", "netns", "exec", namespace, *command, *settings(folder, regime, name, epochs)]
        processes.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL))
    assert all(process.wait() == 0 for process in processes)
    return epoch_s(folder, name, epochs)


def digest(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / "runs" / name / "model.safetensors").read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    epochs = parser.parse_args().epochs
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary, two_hosts():
        folder = Path(temporary)
        for regime, count in SAMPLES.items():
            x, y = random.integers(0, 256, (count, 28, 28), dtype=np.uint8), np.arange(count) % 10
            np.savez(folder / f"{regime}.npz", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
            alone = [sys.executable, "-m", "gcpsl", "train", *settings(folder, regime, f"{regime}-alone", epochs)]
            subprocess.run(alone, check=True, stdout=subprocess.DEVNULL)
        quick = {regime: on_both(folder, regime, f"{regime}-quick", epochs) for regime in SAMPLES}
        slow = {}
        if slow_down():
            slow = {regime: on_both(folder, regime, f"{regime}-slow", epochs) for regime in SAMPLES}
        else:
            print("this kernel has no netem: nothing is measured over a slow link", file=sys.stderr)
        for regime in SAMPLES:
            names = [f"{regime}-quick", *([f"{regime}-slow"] if slow else [])]
            same = all(digest(folder, name) == digest(folder, f"{regime}-alone") for name in names)
            report(f"{regime}: two hosts end with one process's model", float(same), "", "1")
    for regime, seconds in slow.items():
        limit = "<= 0.15" if regime == "epoch" else ""
        lost = seconds / quick[regime] - 1
        report(f"synchronised every {regime}: time lost to the slow link", lost, "", limit, epoch_s=round(seconds, 2))


if __name__ == "__main__":
    main()
