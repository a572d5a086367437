"""How cost grows with the number of clients: time per round, memory beside a bare loop's, and an epoch's plan.

Time per round takes turns between fleets of 256 and 50,000 clients that hold the same 50,000 samples. Memory is the
peak of a process of its own for each contender. Run it with no arguments.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from harness import interleaved, ratio, report, synthetic
from throughput import BATCH, bare_loop

from gcpsl.config import Config, from_mapping
from gcpsl.data import federate
from gcpsl.models import build
from gcpsl.runtimes.base import EpochProgress, Job
from gcpsl.runtimes.eager import EagerRuntime
from gcpsl.sampling import Holdings, epoch_plan
from gcpsl.schedule import epoch_schedule

SAMPLES = 50_000
SHAPES = {"small_cnn": (1, 8, 8), "resnet18": (3, 32, 32)}


class Watcher:
    def rounds_done(self, loss: float, rounds: int) -> None:
        """Nothing."""

    def stop_asked(self) -> bool:
        return False

    def at_barrier(self, place: str) -> None:
        """Nothing."""


def config_of(model: str, clients: int) -> Config:
    return from_mapping(
        {
            "data": {"validation_fraction": 0.0},
            "partition": {"kind": "iid", "clients": clients},
            "model": {"name": model},
            "schedule": {"workloads": 1, "batch_size": BATCH},
            "train": {"epochs": 1},
        }
    )


def epochs_of(model: str, clients: int) -> Callable[[], None]:
    """Runs one more whole epoch at every call: plan, rounds, barrier."""
    config = config_of(model, clients)
    data = federate(config, synthetic(SAMPLES, SHAPES[model]))
    holdings = Holdings.of(data.owners, clients)
    runtime = EagerRuntime(Job(config, data, build(config.model, data.input_shape, data.classes, 0)))
    done = iter(range(1, 1_000_000))

    def run() -> None:
        everyone = np.zeros(clients, dtype=np.int64)
        schedule = epoch_schedule(config.schedule, holdings, everyone, seed=0, epoch=next(done))
        runtime.run_epoch(schedule, config.optimizer.lr, EpochProgress.start(1), Watcher())

    return run


def time_per_round(repeats: int) -> None:
    seconds = interleaved({str(k): epochs_of("small_cnn", k) for k in (256, 50_000)}, repeats)
    grown = ratio(seconds["50000"], seconds["256"])
    rounds = -(-SAMPLES // BATCH)
    per_round = {clients: round(min(values) / rounds * 1e3, 4) for clients, values in seconds.items()}
    report("time per round, K=50,000 / K=256", grown, "x", "< 1.10", ms_per_round=per_round)


def memory_of(model: str, clients: int, rounds: int) -> None:
    """Prints this process's peak after some rounds; `clients` 0 is the bare loop."""
    config = config_of(model, clients or 256)
    data = federate(config, synthetic(SAMPLES, SHAPES[model]))
    holdings = Holdings.of(data.owners, config.partition.clients)
    members = np.arange(config.partition.clients)
    plan = epoch_plan(holdings, members, BATCH, seed=0, cluster=0, epoch=1)
    if clients:
        workload = EagerRuntime(Job(config, data, build(config.model, data.input_shape, 10, 0))).workloads[0]
        workload.clients.enrol(members)
        for t in range(rounds):
            float(workload.round(plan.round(t), config.optimizer.lr))
    else:
        step = bare_loop(model, data, config)
        for t in range(rounds):
            step(torch.from_numpy(plan.samples[plan.bounds[t] : plan.bounds[t + 1]]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def memory(model: str, rounds: int) -> None:
    peaks = {}
    for clients in (0, 256, 50_000):
        words = [sys.executable, __file__, "--memory-of", model, str(clients), str(rounds)]
        peaks[clients] = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    mib = {("bare" if k == 0 else f"K={k}"): peak >> 20 for k, peak in peaks.items()}
    worst = max(peaks[256], peaks[50_000]) / peaks[0]
    report(f"{model} peak memory / bare loop's", worst, "x", "<= 1.3", mib=mib)


def plan_time() -> None:
    for clients in (256, 50_000):
        holdings = Holdings.of(np.arange(SAMPLES) % clients, clients)
        members, seconds = np.arange(clients), []
        for epoch in range(30):
            started = time.perf_counter()
            epoch_plan(holdings, members, BATCH, seed=0, cluster=0, epoch=epoch)
            seconds.append(time.perf_counter() - started)
        report(f"an epoch's plan, 50,000 samples, K={clients}", statistics.median(seconds) * 1e3, "ms", "< 20")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--memory-of", nargs=3, metavar=("MODEL", "CLIENTS", "ROUNDS"), help="for this script's own use"
    )
    words = parser.parse_args()
    if words.memory_of:
        model, clients, rounds = words.memory_of
        memory_of(model, int(clients), int(rounds))
        return
    plan_time()
    time_per_round(3 if words.quick else 15)
    memory("small_cnn", 200)
    memory("resnet18", 3)


if __name__ == "__main__":
    main()
