"""What ranks give, and what they cost: two ranks of one thread each against one process of one thread.

All train the same four size-balanced ResNet-18 workloads of K=256 clients. Speed-ups are ratios of neighbouring turns:
one process, two ranks at once, two ranks one after another. The barrier's cost is that of a fusion against an epoch of
50,000 samples at the measured time per round, and against a bare all-reduce of the same bytes, taking turns with it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
from harness import ratio, report, synthetic

from gcpsl.config import Config, from_mapping
from gcpsl.data import federate
from gcpsl.models import build
from gcpsl.ranks import Alone, Ranks, own_workloads
from gcpsl.runtimes.base import EpochProgress, Job
from gcpsl.runtimes.eager import EagerRuntime
from gcpsl.runtimes.slots import Slots
from gcpsl.sampling import Holdings
from gcpsl.schedule import epoch_schedule

CLIENTS, BATCH, SAMPLES, EPOCH_SAMPLES = 256, 64, 2048, 50_000
FUSIONS = 10


@dataclass(frozen=True)
class Timing:
    epoch_s: float
    fusions_s: list[float]
    bare_s: list[float]


def settings(workloads: int, execution: str) -> Config:
    return from_mapping(
        {
            "data": {"validation_fraction": 0.0},
            "partition": {"kind": "iid", "clients": CLIENTS},
            "model": {"name": "resnet18"},
            "schedule": {"workloads": workloads, "batch_size": BATCH, "execution": execution},
            "runtime": {"threads": 1, "device": "cpu"},
        }
    )


class Watcher:
    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def rounds_done(self, loss: float, rounds: int) -> None:
        """Nothing."""

    def stop_asked(self) -> bool:
        return False

    def at_barrier(self, place: str) -> None:
        self._ranks.meet(place)


def train(workloads: int, execution: str, fusions: int) -> None:
    """On each rank: one epoch, timed from barrier to barrier, and fusions beside bare all-reduces. Prints JSON."""
    torch.set_num_threads(1)
    config = settings(workloads, execution)
    several = "RANK" in os.environ
    ranks: Ranks = Slots(workloads, torch.device("cpu"), timeout_s=600) if several else Alone()
    with closing(ranks):
        data = federate(config, synthetic(SAMPLES, (3, 32, 32)))
        runtime = EagerRuntime(Job(config, data, build(config.model, data.input_shape, data.classes, 0), ranks=ranks))
        own = own_workloads(ranks.rank, ranks.size, workloads)
        assignment = torch.arange(CLIENTS).numpy() % workloads
        schedule = epoch_schedule(config.schedule, Holdings.of(data.owners, CLIENTS), assignment, seed=0, epoch=1)
        runtime.workloads[0].round(schedule.plans[own.start].round(0), 0.01)
        ranks.meet("the start")
        started = time.perf_counter()
        runtime.run_epoch(schedule.part(own), 0.01, EpochProgress.start(len(own), ranks.size), Watcher(ranks))
        ranks.meet("the end")
        epoch_s = time.perf_counter() - started
        fusions_s, bare_s = _barriers(runtime, ranks, fusions) if several else ([], [])
    if ranks.rank == 0:
        print(json.dumps(asdict(Timing(epoch_s, fusions_s, bare_s))))


def _barriers(runtime: EagerRuntime, ranks: Ranks, count: int) -> tuple[list[float], list[float]]:
    """Seconds of fusing with the barrier before it, and of a bare all-reduce that moves as many bytes, in turns.

    An all-reduce moves its buffer twice, in parts and as the sum; a fusion moves each of a rank's replicas and
    then the mean.
    """
    replicas = runtime._replicas()
    size = sum(len(buffer) for buffer in replicas[0])
    flat, fusions, bare = torch.zeros(size * (len(replicas) + 1) // 2), [], []
    for _ in range(count + 1):
        ranks.meet("a turn")
        started = time.perf_counter()
        ranks.meet("the barrier")
        runtime._mean()
        fusions.append(time.perf_counter() - started)
        ranks.meet("another turn")
        started = time.perf_counter()
        dist.all_reduce(flat)
        bare.append(time.perf_counter() - started)
    return fusions[1:], bare[1:]


def launched(ranks: int, workloads: int, execution: str = "concurrent") -> Timing:
    """What the first of so many ranks printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    command = [sys.executable, __file__, "--workloads", str(workloads), "--execution", execution]
    base = os.environ | {"OMP_NUM_THREADS": "1"}
    envs = [base | meeting | {"RANK": str(rank)} for rank in range(ranks)] if ranks > 1 else [base]
    processes = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for env in envs]
    outputs = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return Timing(**json.loads(outputs[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--workloads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--execution", help=argparse.SUPPRESS)
    parser.add_argument("--fusions", type=int, default=FUSIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.workloads:
        train(options.workloads, options.execution, options.fusions)
        return
    alone, at_once, in_turn = [], [], []
    for _ in range(options.turns):
        alone.append(launched(1, 4))
        at_once.append(launched(2, 4))
        in_turn.append(launched(2, 4, "sequential"))
    _report_ratio("two ranks / one process", alone, at_once)
    _report_ratio("two ranks at once / in turn", in_turn, at_once)
    epoch_s = statistics.median(answer.epoch_s for answer in at_once) * EPOCH_SAMPLES / SAMPLES
    for workloads, answer in ((4, at_once[-1]), (2, launched(2, 2))):
        fusion_s = statistics.median(answer.fusions_s)
        report(
            f"barrier and fusion / epoch, N={workloads}", fusion_s / epoch_s, "", "<= 0.02", seconds=round(fusion_s, 3)
        )
        cost = ratio(answer.fusions_s, answer.bare_s)
        report(f"barrier and fusion / bare all-reduce, N={workloads}", cost, "x", "<= 1.5")


def _report_ratio(name: str, slower: list[Timing], faster: list[Timing]) -> None:
    turns = [round(a.epoch_s / b.epoch_s, 2) for a, b in zip(slower, faster, strict=True)]
    report(name, statistics.median(turns), "x", ">= 1.8", turns=turns)


if __name__ == "__main__":
    main()
