"""A model of what a barrier costs, checked on up to 16 hosts, and what it says of 4 to 1,024 slots.

An epoch takes its rounds, a meeting and a fusion. With S slots of w workloads each and a model of P bytes a slot sends,
and receives, (w + 1) P (S - 1) / S bytes in a fusion, in two steps of S - 1 messages. So

    epoch = rounds x round + bytes / rate + messages x each + trips x trip

Checked where the link is the bound: each host is a network namespace whose cable to a switch carries so much per second
both ways. Nothing is fitted; the rate is the cable's, less what packets' headers take. Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import torch
from harness import report
from rich.console import Console
from rich.table import Table

from gcpsl.runtimes.slots import Slots

RESNET18_BYTES = 4 * 11_173_962
SIZES_BYTES = (2 << 20, 8 << 20)
HOSTS = (2, 4, 8, 16)
MBIT = 100
PAYLOAD = 1448 / 1514  # of an Ethernet frame that carries TCP
TRIPS = 3  # to the store in a meeting
TURNS = 4
SWITCH = "gcpsl-switch"


def moved(slots: int, workloads_each: float, replica_bytes: float) -> float:
    """Bytes that a slot sends in a fusion; it receives as many."""
    return (workloads_each + 1) * replica_bytes * (slots - 1) / slots


@dataclass(frozen=True)
class Link:
    """What joins the slots: bytes per second that each can send, seconds per message, and a round trip's."""

    bytes_per_s: float
    message_s: float
    trip_s: float

    def barrier_s(self, slots: int, workloads_each: float, replica_bytes: float) -> float:
        """A meeting, and a fusion's two exchanges of slices."""
        if slots == 1:
            return 0.0
        sending = moved(slots, workloads_each, replica_bytes) / self.bytes_per_s
        return sending + 2 * (slots - 1) * self.message_s + TRIPS * self.trip_s


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def limit(namespace: str, end: str) -> None:
    """What leaves by this end of a cable goes no faster than the link; a queue holds 50 ms of it."""
    tbf = ["tbf", "rate", f"{MBIT}mbit", "burst", "32kb", "latency", "50ms"]
    subprocess.run(["tc", "-n", namespace, "qdisc", "add", "dev", end, "root", *tbf], check=True)


@contextmanager
def hosts(count: int) -> Iterator[list[str]]:
    """Namespaces with an address each on a switch, which is a namespace too; all are gone afterwards."""
    names = [f"gcpsl-{i}" for i in range(1, count + 1)]
    try:
        for name in (SWITCH, *names):
            ip("netns", "add", name)
        ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge")
        ip("-n", SWITCH, "link", "set", "bridge", "up")
        for i, name in enumerate(names, 1):
            port = f"port-{i}"
            ip("link", "add", "cable", "netns", name, "type", "veth", "peer", "name", port, "netns", SWITCH)
            ip("-n", SWITCH, "link", "set", port, "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.78.0.{i}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
            limit(name, "cable")
            limit(SWITCH, port)
        yield names
    finally:
        for name in (SWITCH, *names):
            subprocess.run(["ip", "netns", "del", name], check=False)


def on_rank(replica_bytes: int) -> None:
    """A process of a measurement. The first prints the median time of a meeting with its fusion."""
    torch.set_num_threads(1)
    size = int(os.environ["WORLD_SIZE"])
    with closing(Slots(size, torch.device("cpu"), timeout_s=600)) as ranks:
        replica, into, times = [torch.randn(replica_bytes // 4)], [torch.empty(replica_bytes // 4)], []
        for _ in range(TURNS):
            ranks.meet("a turn")
            started = time.perf_counter()
            ranks.meet("the barrier")
            ranks.fuse([replica], [1 / size] * size, into)
            ranks.meet("the end")
            times.append(time.perf_counter() - started)
        if ranks.rank == 0:
            print(json.dumps(statistics.median(times[1:])))


def measured_s(names: list[str], replica_bytes: int) -> float:
    """Seconds of a barrier over these hosts, a rank and a replica on each."""
    base = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "cable"}
    meeting = {"MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29512", "WORLD_SIZE": str(len(names))}
    command = [sys.executable, __file__, "--replica-bytes", str(replica_bytes)]
    processes = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *command],
            env=base | meeting | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(names)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return float(json.loads(outputs[0]))


def check() -> None:
    link = Link(MBIT / 8 * 1e6 * PAYLOAD, 0.0, 0.0)
    for count in HOSTS:
        with hosts(count) as names:
            for size in SIZES_BYTES:
                seconds, foretold = measured_s(names, size), link.barrier_s(count, 1, size)
                name = f"barrier over {count} hosts at {MBIT} Mbit/s, {size >> 20} MiB"
                report(name, seconds, "s", foretold=round(foretold, 3), ratio=round(seconds / foretold, 3))


@dataclass(frozen=True)
class Place:
    """Where slots stand: what a round of 64 samples takes there, and what joins them, which is assumed."""

    name: str
    round_s: float
    link: Link
    samples: int

    def epoch_s(self, slots: int, fusions: int) -> float:
        rounds = math.ceil(math.ceil(self.samples / slots) / 64)
        return rounds * self.round_s + min(fusions, rounds) * self.link.barrier_s(slots, 1, RESNET18_BYTES)


H200_ROUND_S = 64 / 51_180  # `gpu.py`, one workload
PLACES = (
    Place("a GPU each, 400 Gbit/s", H200_ROUND_S, Link(50e9, 5e-6, 1e-4), 50_000),
    Place("the same, 1.28 million samples", H200_ROUND_S, Link(50e9, 5e-6, 1e-4), 1_281_167),
    Place("a GPU at each site, 100 Mbit/s and 100 ms round trip", H200_ROUND_S, Link(12.5e6, 0, 0.1), 1_281_167),
)


def foretell() -> None:
    """Epochs of ResNet-18 on 4 to 1,024 slots of one workload each: fused once, or averaged every round."""
    for place in PLACES:
        table = Table(
            "slots", "rounds", "epoch, fused once", "efficiency", "barrier's share", "epoch, averaged every round"
        )
        alone = place.epoch_s(1, 0)
        for slots in (1, 4, 16, 64, 256, 1024):
            once, every = place.epoch_s(slots, 1), place.epoch_s(slots, 1 << 60)
            rounds = math.ceil(math.ceil(place.samples / slots) / 64)
            share = place.link.barrier_s(slots, 1, RESNET18_BYTES) / once
            table.add_row(
                str(slots),
                f"{rounds:,}",
                f"{once:.3g} s",
                f"{alone / slots / once:.0%}",
                f"{share:.1%}",
                f"{every:.3g} s",
            )
        Console(width=120).print(place.name, table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replica-bytes", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replica_bytes:
        on_rank(options.replica_bytes)
        return
    check()
    foretell()


if __name__ == "__main__":
    main()
