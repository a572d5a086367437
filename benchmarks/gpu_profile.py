"""Where a round's time goes on the GPU: its kernels, and each segment's share of the arithmetic limit.

`--trace FILE` keeps one round's kernels, a JSON line each, in the order they began.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpu import BATCH, Silence, flops_per_image, made, matrix_flops, settings
from harness import report
from rich.console import Console
from rich.table import Table
from throughput import bare_network
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from gcpsl.runtimes.base import EpochProgress

ROUNDS = 20
CLIENT_CONVOLUTIONS, CONVOLUTIONS = 5, 20  # before the cut, and in all


@dataclass(frozen=True)
class Kernel:
    """One launch. Several run side by side, so their times add up to more than the round's."""

    name: str
    at_us: float
    us: float
    stream: int
    grid: list[int]
    registers: int

    @classmethod
    def of(cls, event: dict[str, Any]) -> Kernel:
        args = event["args"]
        name = event["name"].removeprefix("void ").split("<")[0].split("(")[0]
        grid, registers = args.get("grid", []), args.get("registers per thread", 0)
        return cls(name, event["ts"], event["dur"], args.get("stream", 0), grid, registers)


def replayed(workloads: int) -> list[list[Kernel]]:
    """The kernels of some rounds, in the order they began."""
    runtime, schedule = made(settings(workloads, "bf16"))
    runtime.run_epoch(schedule, 0.01, EpochProgress.start(workloads), Silence())
    runtime._lanes.turn_to([0] * workloads, schedule.rounds, lr=0.0)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(ROUNDS):
            runtime._graphs.replay((0, BATCH))
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    kernels = sorted((Kernel.of(e) for e in events if e.get("cat") in kinds), key=lambda kernel: kernel.at_us)
    size = len(kernels) // ROUNDS
    return [kernels[start : start + size] for start in range(0, size * ROUNDS, size)]


def segment_us(kernels: list[Kernel]) -> dict[str, float]:
    """How long the client's and the server's part of a round take, told apart by how many convolutions have run."""
    forward = [k for k in kernels if k.name == "forward"]
    backward = [k for k in kernels if k.name == "input_gradient"]
    server_from, last = forward[CLIENT_CONVOLUTIONS].at_us, backward[CONVOLUTIONS - CLIENT_CONVOLUTIONS - 1]
    start, end = kernels[0].at_us, max(k.at_us + k.us for k in kernels)
    server = last.at_us + last.us - server_from
    return {"client": end - start - server, "server": server}


def client_flops_per_image() -> float:
    network = bare_network("resnet18", (3, 32, 32))
    with FlopCounterMode(display=False) as counter:
        x = torch.randn(2, 3, 32, 32)
        for name in ("conv1", "bn1", "layer1"):
            x = network.get_submodule(name)(x)
        x.sum().backward()
    return float(counter.get_total_flops() / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=4)
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    rounds = replayed(options.workloads)
    first, end = rounds[0][0].at_us, max(k.at_us + k.us for k in rounds[-1])
    report("a round", (end - first) / ROUNDS, "us", kernels=len(rounds[0]), workloads=options.workloads)
    limit, client, images = matrix_flops(), client_flops_per_image(), options.workloads * BATCH
    flops = {"client": client, "server": flops_per_image() - client}
    for name, us in segment_us(rounds[ROUNDS // 2]).items():
        rate = images * flops[name] / us * 1e6
        report(f"{name} segment", us, "us", tflops=round(rate / 1e12), share_of_limit=round(rate / limit, 3))
    _print_kernels([kernel for own in rounds for kernel in own])
    if options.trace:
        options.trace.write_text("\n".join(json.dumps(vars(kernel)) for kernel in rounds[ROUNDS // 2]) + "\n")


def _print_kernels(kernels: list[Kernel]) -> None:
    times: dict[str, list[float]] = defaultdict(list)
    for kernel in kernels:
        times[kernel.name].append(kernel.us)
    table = Table("kernel", "launches", "us a round")
    for name, own in sorted(times.items(), key=lambda item: -sum(item[1])):
        table.add_row(name[:60], f"{len(own) / ROUNDS:.0f}", f"{sum(own) / ROUNDS:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
