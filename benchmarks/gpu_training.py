"""Whole trainings on one GPU: time to 85%, 100 epochs, and the graphed runtime's accuracy beside the eager one's.

CIFAR-10, ResNet-18, K=256, four size-balanced workloads of 64 samples, learning rate 0.01: the preset `paper-real`
(45,000 training samples, 5,000 held out), and its like on all 50,000. Run folders that are finished are used again.
Prints a JSON line per figure.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from harness import RECORDED, report
from rich.console import Console

import gcpsl
from gcpsl import environment
from gcpsl.display import Lines
from gcpsl.records import Summary
from gcpsl.runs import RunFolder

KINDS = {
    "graphed": ("paper-real", "runtime.kind=graphed"),
    "eager": ("paper-real", "runtime.kind=eager", "runtime.channels_last=false"),  # faster in float32
    "all-samples": ("paper-simulator", "clustering.rule=size_balanced", "runtime.kind=graphed"),
}


def run(kind: str, seed: int, epochs: int, options: argparse.Namespace) -> Summary:
    """The summary of a run, which is trained if it isn't there yet."""
    name = f"{kind}-{epochs}-epochs-seed-{seed}"
    path = options.runs / name
    done = RunFolder(path).read_json("summary.json") if path.is_dir() else None
    if done is not None:
        return Summary.from_json(done)
    display = Lines(Console())
    if path.is_dir():
        result = gcpsl.resume(path, display=display)
    else:
        preset, *settings = KINDS[kind]
        place = [f"data.root={options.data}", f"run.root={options.runs}", f"run.name={name}"]
        fixed = [f"seed={seed}", f"train.epochs={epochs}", "run.checkpoint_every_s=300"]
        result = gcpsl.train(preset, *settings, *place, *fixed, display=display)
    assert result.summary is not None
    return result.summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds cifar-10-batches-py")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for kind in options.kinds:
        _report(kind, [run(kind, seed, options.epochs, options) for seed in options.seeds])
    if options.out:
        options.out.write_text(json.dumps({"environment": environment.describe(), "figures": RECORDED}, indent=1))


def _report(kind: str, summaries: list[Summary]) -> None:
    """Means over the seeds, with each seed's value."""

    def figure(name: str, values: list[float], unit: str, limit: str = "") -> None:
        spread = round(statistics.stdev(values), 3) if len(values) > 1 else None
        report(f"{kind}: {name}", statistics.mean(values), unit, limit, sd=spread, seeds=[round(v, 3) for v in values])

    figure("test accuracy at the end", [s.test_accuracy for s in summaries], "%")
    for i, target in enumerate(summaries[0].targets):
        reached = [s.targets[i] for s in summaries if s.targets[i].epoch is not None]
        if reached:
            name, asked = f"{target.target:g}", "<= 15" if kind == "graphed" else ""
            figure(f"t{name}", [t.time_s or 0.0 for t in reached], "s", asked)
            figure(f"R{name}", [float(t.rounds or 0) for t in reached], "rounds")
        report(f"{kind}: runs that reached {target.target:g}%", len(reached), f"of {len(summaries)}")
    figure("rounds, fusion and validation", [s.training_s for s in summaries], "s", "<= 90 for 100 epochs")
    figure("set-up", [s.setup_s for s in summaries], "s", "<= 30 cold, <= 10 warm")
    figure("all, from start to end", [s.wall_s for s in summaries], "s")


if __name__ == "__main__":
    main()
