"""Two hosts that share a run over a link of 50 ms each way and 100 Mbit/s, against one without delay or limit.

Fusing once an epoch against averaging gradients every round: what each loses to the slow link, and that both hosts end
with one process's model. A small CNN on 28x28 images, as many an epoch as EMNIST Digits has; rounds that average are
all alike, so fewer of them do. Then ResNet-18's replicas over the same links. Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import slots
from harness import ratio, report
from two_hosts import CABLE, ENDS, FIRST, HERE, Link, quick_and_slow, two_hosts

DELAY_S, BITS_PER_S = 0.05, 100e6
PORT = 29511
EPOCHS = {"epoch": 2, "step": 1}


@dataclass(frozen=True)
class Regime:
    """How often the hosts synchronise, on how many samples an epoch."""

    name: str
    samples: int
    folder: Path

    def settings(self, run: str) -> list[str]:
        data = ["data.name=npz", f"data.root={self.folder / self.name}.npz", "data.validation_fraction=0"]
        extra = ["schedule.draw=all", "schedule.synchronise=step"] if self.name == "step" else []
        named = [f"run.root={self.folder / 'runs'}", f"run.name={run}", "run.checkpoint_every_s=600"]
        sizes = ["partition.clients=64", "schedule.workloads=2", "schedule.batch_size=64"]
        length = [f"train.epochs={EPOCHS[self.name]}", "runtime.threads=1", "runtime.timeout_s=120"]
        return [*data, *sizes, *named, *length, *extra]

    def make_data(self) -> None:
        random = np.random.default_rng(0)
        x, y = random.integers(0, 256, (self.samples, 28, 28), dtype=np.uint8), np.arange(self.samples) % 10
        np.savez(self.folder / f"{self.name}.npz", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])


@dataclass(frozen=True)
class Outcome:
    """What a run took, in seconds per epoch, and the model it ended with."""

    epoch_s: float
    fusion_s: float
    rounds: int
    digest: str

    @classmethod
    def of(cls, path: Path) -> Outcome:
        summary = json.loads((path / "summary.json").read_text())
        epochs = [json.loads(line) for line in (path / "epochs.jsonl").read_text().splitlines()]
        return cls(
            (summary["wall_s"] - summary["setup_s"]) / len(epochs),
            statistics.mean(epoch["fusion_s"] for epoch in epochs),
            epochs[0]["schedule_rounds"],
            hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest(),
        )


class Runs:
    """Each is a folder of its own."""

    def __init__(self, root: Path) -> None:
        self._root, self._count = root, 0

    def alone(self, regime: Regime) -> Outcome:
        name = self._new_name()
        command = [sys.executable, "-m", "gcpsl", "train", *regime.settings(name)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
        return Outcome.of(self._root / "runs" / name)

    def on_both(self, regime: Regime, link: Link) -> Outcome:
        """By torchrun, a rank on each host."""
        name = self._new_name()
        torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        meeting = [f"--master-addr={FIRST}", f"--master-port={PORT}"]
        train = ["-m", "gcpsl", "train", *regime.settings(name)]
        with two_hosts(link) as pair:
            pair.on_both(lambda host: [*torchrun, f"--node-rank={host}", *meeting, *train], lambda _: {})
        return Outcome.of(self._root / "runs" / name)

    def _new_name(self) -> str:
        self._count += 1
        return f"run-{self._count}"


def report_links(quick: Link, slow: Link) -> None:
    for name, link, size_bytes in (("the slow link", slow, 60_000_000), ("without delay or limit", quick, 500_000_000)):
        with two_hosts(link) as pair:
            seen = pair.probe(size_bytes)
        share = {"relay_share_of_a_core": seen["relay_share_of_a_core"]} if link.relayed else {}
        limited = link is slow
        report(f"{name}: round trip", seen["round_trip_s"], "s", "0.1 to 0.11" if limited else "")
        report(
            f"{name}: one TCP connection", seen["bits_per_s"] / 1e6, "Mbit/s", "90 to 100" if limited else "", **share
        )


def report_regime(regime: Regime, runs: Runs, links: tuple[Link, Link], turns: int) -> None:
    alone = runs.alone(regime)
    pairs = []
    for turn in range(turns):
        order = links if turn % 2 == 0 else links[::-1]
        outcomes = {link: runs.on_both(regime, link) for link in order}
        pairs.append([outcomes[link] for link in links])
    by_cable = runs.on_both(regime, CABLE)
    same = all(outcome.digest == alone.digest for outcome in [by_cable, *(o for pair in pairs for o in pair)])
    report(f"{regime.name}: two hosts end with one process's model", float(same), "", "1")
    quick, slow = ([pair[i].epoch_s for pair in pairs] for i in range(2))
    report(
        f"synchronised every {regime.name}: time lost to the slow link",
        ratio(slow, quick) - 1,
        "",
        "<= 0.15" if regime.name == "epoch" else "",
        turns=[round(a / b - 1, 3) for a, b in zip(slow, quick, strict=True)],
        rounds=alone.rounds,
        quick_ms_per_round=round(1000 * statistics.median(quick) / alone.rounds, 1),
        slow_ms_per_round=round(1000 * statistics.median(slow) / alone.rounds, 1),
        slow_epoch_s=round(statistics.median(slow), 1),
        slow_fusion_s=round(statistics.median(pair[1].fusion_s for pair in pairs), 2),
    )
    if links[0].relayed:
        report(f"{regime.name}: the relay itself, against a cable", quick[-1] / by_cable.epoch_s - 1, "")


def resnet18(link: Link, fusions: int) -> slots.Timing:
    """Two workloads of ResNet-18, a rank each: an epoch, then fusions and bare all-reduces in turns."""
    command = [str(HERE / "slots.py"), "--workloads", "2", "--execution", "concurrent", "--fusions", str(fusions)]
    meeting = {"MASTER_ADDR": FIRST, "MASTER_PORT": str(PORT), "WORLD_SIZE": str(len(ENDS))}
    with two_hosts(link) as pair:
        printed = pair.on_both(lambda _: command, lambda host: meeting | {"RANK": str(host)})
    return slots.Timing(**json.loads(printed[0]))


def report_resnet18(links: tuple[Link, Link], fusions: int) -> None:
    quick, slow = (resnet18(link, fusions) for link in links)
    fusion_s, quick_s = (statistics.median(timing.fusions_s) for timing in (slow, quick))
    epoch_s = quick.epoch_s * slots.EPOCH_SAMPLES / slots.SAMPLES
    bytes_sent = 4 * 11_173_962
    report("ResNet-18: barrier and fusion over the slow link", fusion_s, "s", bytes_each_way=bytes_sent)
    report("ResNet-18: the same / a bare all-reduce", ratio(slow.fusions_s, slow.bare_s), "x")
    report(
        "ResNet-18: time lost to the slow link, of an epoch of 50,000 samples",
        (fusion_s - quick_s) / epoch_s,
        "",
        "<= 0.15",
        epoch_s=round(epoch_s),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--samples", type=int, default=240_000)
    parser.add_argument("--step-samples", type=int, default=12_800)
    parser.add_argument("--fusions", type=int, default=4)
    options = parser.parse_args()
    links = quick_and_slow(DELAY_S, BITS_PER_S)
    report_links(*links)
    with tempfile.TemporaryDirectory() as temporary:
        runs = Runs(Path(temporary))
        for name, samples, turns in (("step", options.step_samples, 1), ("epoch", options.samples, options.turns)):
            regime = Regime(name, samples, Path(temporary))
            regime.make_data()
            report_regime(regime, runs, links, turns)
    report_resnet18(links, options.fusions)


if __name__ == "__main__":
    main()
