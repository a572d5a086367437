"""How long a plan takes, in process: the paper's 256 clients, and a million clients known by their counts."""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np

from gcpsl.config import PartitionConfig
from gcpsl.data.partitions import partition
from gcpsl.fleet import Fleet
from gcpsl.planner import plan

MIB = 2**20


def paper_fleet() -> Fleet:
    labels = np.repeat(np.arange(10), 5000)
    return Fleet.from_owners(partition(PartitionConfig(clients=256), labels, 10, 0).owners, labels, 10)


def million() -> Fleet:
    counts = np.random.default_rng(0).lognormal(4, 0.8, 1_000_000).astype(np.int64) + 1
    return Fleet(tuple(map(str, range(len(counts)))), counts)


def memory_max_mib() -> float:
    """This process's peak; Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MIB if sys.platform == "darwin" else peak / 1024


def timed(name: str, fleet: Fleet, rules: tuple[str, ...], limit_s: float) -> None:
    started = time.perf_counter()
    answer = plan(fleet, batch_size=64, rules=rules)
    took_s = time.perf_counter() - started
    figure = {"name": name, "value": took_s, "unit": "s", "limit": limit_s, "holds": took_s <= limit_s}
    print(json.dumps({**figure, "rows": len(answer.rows), "memory_max_mib": memory_max_mib()}))


if __name__ == "__main__":
    timed("plan K=256, three rules, N=2..16", paper_fleet(), ("random", "size_balanced", "label_aware"), 0.3)
    timed("plan K=1,000,000, size_balanced, N=2..16", million(), ("size_balanced",), 30)
