"""Where a round's time goes on the GPU: the kernels of replayed rounds, by name and one by one."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import torch
from gpu import BATCH, CLIENTS, SAMPLES, Silence, settings
from harness import synthetic
from torch.profiler import ProfilerActivity, profile

from gcpsl.data import federate
from gcpsl.models import build
from gcpsl.runtimes.base import EpochProgress, Job
from gcpsl.runtimes.graphed import GraphedRuntime
from gcpsl.sampling import Holdings
from gcpsl.schedule import epoch_schedule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=4)
    parser.add_argument("--trace", type=Path, help="keep every kernel of one round here")
    options = parser.parse_args()
    config = settings(options.workloads, "bf16")
    data = federate(config, synthetic(SAMPLES, (3, 32, 32)))
    runtime = GraphedRuntime(Job(config, data, build(config.model, data.input_shape, data.classes, 0), print))
    assignment = torch.arange(CLIENTS).numpy() % options.workloads
    schedule = epoch_schedule(config.schedule, Holdings.of(data.owners, CLIENTS), assignment, seed=0, epoch=1)
    runtime.run_epoch(schedule, 0.01, EpochProgress.start(options.workloads), Silence())
    runtime._lanes.turn_to([0] * options.workloads, schedule.rounds, lr=0.0)
    rounds = 10
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(rounds):
            runtime._graphs.replay((0, BATCH))
        torch.cuda.synchronize()
    path = options.trace or Path("/tmp/trace.json")
    profiler.export_chrome_trace(str(path))
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") in kinds]
    events.sort(key=lambda e: e["ts"])
    per_round = len(events) // rounds
    span = (events[-1]["ts"] + events[-1]["dur"] - events[0]["ts"]) / rounds
    print(f"{per_round} kernels, {span:.0f} us a round")
    totals: dict[str, list[float]] = defaultdict(list)
    for e in events:
        totals[e["name"][:60]].append(e["dur"])
    for name, durations in sorted(totals.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(durations) / rounds:9.1f} us {len(durations) / rounds:6.1f} x {name}")
    one = events[per_round * 5 : per_round * 6]
    kept = [
        {"name": e["name"][:50], "at": e["ts"] - one[0]["ts"], "us": e["dur"]}
        | {key: e["args"].get(key) for key in ("stream", "grid", "block", "registers per thread", "shared memory")}
        for e in one
    ]
    path.write_text("\n".join(json.dumps(k) for k in kept))


if __name__ == "__main__":
    main()
