"""Whether the graphed runtime in bf16 trains as well as the eager one in float32, from the run folders of both.

Runs are compared over the epochs that all of them have, seed by seed. Prints a JSON line per figure.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import RECORDED, report

from gcpsl.runs import RunFolder

TARGET, LAST = 85.0, 10
Epochs = Sequence[Mapping[str, Any]]


def rounds_to_target(epochs: Epochs) -> float:
    """Schedule rounds up to the first epoch whose validation accuracy reaches the target."""
    until = next(i for i, epoch in enumerate(epochs, 1) if epoch["validation_accuracy"] >= TARGET)
    return float(sum(epoch["schedule_rounds"] for epoch in epochs[:until]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in ("graphed", "eager"):
        parser.add_argument(f"--{kind}", type=Path, nargs="+", required=True, help="run folders, in the seeds' order")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    runs = {kind: [RunFolder(path).epochs() for path in getattr(options, kind)] for kind in ("graphed", "eager")}
    epochs = min(len(run) for own in runs.values() for run in own)
    last = slice(epochs - LAST, epochs)
    figures: dict[str, tuple[str, Callable[[Epochs], float]]] = {
        f"R{TARGET:g}": ("rounds", rounds_to_target),
        f"test accuracy, mean of epochs {epochs - LAST + 1} to {epochs}": (
            "%",
            lambda run: statistics.mean(epoch["test_accuracy"] for epoch in run[last]),
        ),
        f"training loss of epoch {epochs}": ("", lambda run: run[epochs - 1]["loss"]),
    }
    for name, (unit, figure) in figures.items():
        for kind, own in runs.items():
            values = [figure(run) for run in own]
            spread, seeds = round(statistics.stdev(values), 3), [round(v, 3) for v in values]
            report(f"{kind}: {name}", statistics.mean(values), unit, sd=spread, seeds=seeds)
    if options.out:
        options.out.write_text(json.dumps({"figures": RECORDED}, indent=1))


if __name__ == "__main__":
    main()
