"""Images per second of the graphed runtime on one GPU, against PyTorch loops that know nothing of split learning.

All take turns in one process, on the same network (ResNet-18, GroupNorm before the cut) and random images: the graphed
runtime with 1, 4 and 16 workloads; a plain eager loop; the same in bf16; and, in bf16, compiled and captured into a
CUDA graph, one loop and four side by side. The arithmetic limit is what a large matrix product reaches.
Prints a JSON line per figure and then a table; `--out FILE` keeps the lines, with the device, versions and commit.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from harness import RECORDED, interleaved, ratio, report, synthetic
from rich.console import Console
from rich.table import Table
from throughput import bare_network
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from gcpsl import environment
from gcpsl.config import Config, from_mapping
from gcpsl.data import FederatedData, federate
from gcpsl.data.device import DeviceSamples
from gcpsl.models import build
from gcpsl.runtimes.base import EpochProgress, Job
from gcpsl.runtimes.graphed import GraphedRuntime
from gcpsl.sampling import Holdings
from gcpsl.schedule import EpochSchedule, epoch_schedule

BATCH, CLIENTS, SAMPLES = 64, 256, 50_000
SIDE = 8192  # of the matrices that tell the arithmetic limit


@dataclass(frozen=True)
class Contender:
    """Something that trains on so many images each time it is called."""

    images: int
    run: Callable[[], None]


def settings(workloads: int, precision: str) -> Config:
    return from_mapping(
        {
            "data": {"validation_fraction": 0.0, "crop_padding": 1, "flip": True},
            "partition": {"clients": CLIENTS},
            "clustering": {"rule": "size_balanced"},
            "model": {"name": "resnet18", "cut": "layer2"},
            "schedule": {"workloads": workloads, "batch_size": BATCH},
            "optimizer": {"lr": 0.01},
            "runtime": {"kind": "graphed", "device": "cuda", "precision": precision},
        }
    )


class Silence:
    def rounds_done(self, loss: float, rounds: int) -> None:
        """Nobody asked."""

    def stop_asked(self) -> bool:
        return False

    def at_barrier(self, place: str) -> None:
        """Nothing."""


def made(config: Config) -> tuple[GraphedRuntime, EpochSchedule]:
    """The graphed runtime on random images, and an epoch's schedule for it."""
    data = federate(config, synthetic(SAMPLES, (3, 32, 32)))
    model = build(config.model, data.input_shape, data.classes, config.seed)
    assignment = torch.arange(CLIENTS).numpy() % config.schedule.workloads
    schedule = epoch_schedule(config.schedule, Holdings.of(data.owners, CLIENTS), assignment, seed=0, epoch=1)
    return GraphedRuntime(Job(config, data, model, print)), schedule


def graphed(workloads: int, precision: str = "bf16") -> Contender:
    """Whole epochs of the graphed runtime, fusion and all."""
    config = settings(workloads, precision)
    runtime, schedule = made(config)
    runtime.prepare(schedule)

    def epoch() -> None:
        runtime.run_epoch(schedule, config.optimizer.lr, EpochProgress.start(workloads), Silence())
        torch.cuda.synchronize()

    return Contender(SAMPLES, epoch)


class Loop:
    """A training loop as one would write it: uint8 images on the GPU, a network, an optimizer."""

    def __init__(self, data: FederatedData, *, low: bool, compiled: bool = False) -> None:
        self.network = bare_network("resnet18", data.input_shape, channels_last=low).cuda()
        self._forward: Callable[[Tensor], Tensor] = torch.compile(self.network) if compiled else self.network
        self._optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=low
        )
        self._samples = DeviceSamples(data.train, data.mean, data.std, torch.device("cuda"), channels_last=low)
        self._low = low
        self.indices = torch.arange(BATCH, device="cuda")

    def step(self) -> None:
        images, labels = self._samples.batch(self.indices), self._samples.labels[self.indices]
        with torch.autocast("cuda", torch.bfloat16, enabled=self._low, cache_enabled=False):
            scores = self._forward(images)
        cross_entropy(scores.float(), labels, label_smoothing=0.1).backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def eager(data: FederatedData, *, low: bool, rounds: int = 100) -> Contender:
    loop = Loop(data, low=low)

    def run() -> None:
        for t in range(rounds):
            loop.indices = torch.arange(t * BATCH, (t + 1) * BATCH, device="cuda")
            loop.step()
        torch.cuda.synchronize()

    return Contender(rounds * BATCH, run)


def captured(data: FederatedData, loops: int, rounds: int = 400) -> Contender:
    """Compiled loops, each step a replayed graph in a stream of its loop's own."""
    steps: list[tuple[Loop, torch.cuda.CUDAGraph, torch.cuda.Stream]] = []
    batches = torch.arange(rounds * BATCH, device="cuda").view(rounds, BATCH)
    for _ in range(loops):
        loop, stream, graph = Loop(data, low=True, compiled=True), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                loop.step()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            loop.step()
        steps.append((loop, graph, stream))

    def run() -> None:
        for batch in batches:
            for loop, graph, stream in steps:
                with torch.cuda.stream(stream):
                    loop.indices.copy_(batch)
                    graph.replay()
        torch.cuda.synchronize()

    return Contender(loops * rounds * BATCH, run)


def matrix_flops() -> float:
    """Floating-point operations per second of a large bf16 product of random matrices."""
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(13):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        a @ b
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return float(2 * SIDE**3 / statistics.median(times[3:]))


def flops_per_image() -> float:
    """What the products of a training step take, counted."""
    network = bare_network("resnet18", (3, 32, 32))
    with FlopCounterMode(display=False) as counter:
        network(torch.randn(2, 3, 32, 32)).sum().backward()
    return float(counter.get_total_flops() / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled loops out, which take a minute")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = federate(settings(1, "bf16"), synthetic(SAMPLES, (3, 32, 32)))
    contenders = {
        "graphed N=1": graphed(1),
        "graphed N=4": graphed(4),
        "graphed N=16": graphed(16),
        "eager loop": eager(data, low=False),
        "eager loop, bf16": eager(data, low=True),
    }
    if not options.no_compile:
        contenders |= {"compiled, captured loop": captured(data, 1), "4 compiled, captured loops": captured(data, 4)}
    seconds = interleaved({name: c.run for name, c in contenders.items()}, options.turns)
    per_image = {name: [s / contenders[name].images for s in own] for name, own in seconds.items()}
    _report(per_image, matrix_flops() / flops_per_image())
    _print_table(per_image)
    if options.out:
        options.out.write_text(json.dumps({"environment": environment.describe(), "figures": RECORDED}, indent=1))


def _report(per_image: dict[str, list[float]], limit: float) -> None:
    asked = {"graphed N=1": ">= 40,000", "graphed N=4": ">= 55,000"}
    for name, own in per_image.items():
        report(name, 1 / statistics.median(own), "images/s", asked.get(name, ""))
    report("arithmetic limit", limit, "images/s")
    versus = [
        ("graphed N=4", "eager loop", ">= 8"),
        ("graphed N=1", "compiled, captured loop", ">= 1"),
        ("graphed N=4", "4 compiled, captured loops", ">= 1"),
        ("graphed N=16", "graphed N=4", ">= 1"),
    ]
    for one, other, least in versus:
        if other in per_image:
            report(f"{one} / {other}", ratio(per_image[other], per_image[one]), "x", least)
    fastest = 1 / statistics.median(per_image["graphed N=4"])
    report("graphed N=4 / arithmetic limit", fastest / limit, "x")


def _print_table(per_image: dict[str, list[float]]) -> None:
    table = Table("contender", "images/s", "least", "most")
    for name, own in per_image.items():
        speeds = [1 / statistics.median(own), 1 / max(own), 1 / min(own)]
        table.add_row(name, *(f"{speed:,.0f}" for speed in speeds))
    Console().print(table)


if __name__ == "__main__":
    main()
