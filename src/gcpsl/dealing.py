"""Clients dealt out one by one: size balancing, and what label-aware searches start from.

Every slot has a speed, and clusters of fast ones get more. Knows counts and histograms, nothing of settings or seeds.
No cluster is left empty; ties go to the lowest index, of clients and of clusters.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import partial

import numpy as np

from gcpsl.fleet import Fleet, IntArray
from gcpsl.speeds import Speeds, relative

Group = tuple[float, list[tuple[int, int]]]
"""Clusters on equally fast slots: their speed, and a heap of (samples, cluster)."""


def largest_first(sizes: IntArray, clusters: int, speeds: Speeds | None = None) -> IntArray:
    """Each client into the cluster that would be done soonest with it, of those that have room for one more.

    Room is for a share of the clients in proportion to speed, rounded up: ceil(K / N) where all slots are alike.
    """
    speed = relative(speeds, clusters)
    room = np.ceil(len(sizes) * speed / speed.sum()).astype(np.int64).tolist()
    # among equally fast slots the lightest is done first, so only groups of them need comparing
    groups: list[Group] = [
        (s, [(0, n) for n in np.flatnonzero(speed == s).tolist()]) for s in np.unique(speed).tolist()
    ]
    assignment = np.empty(len(sizes), dtype=np.int64)
    empty = clusters
    for left, k, size in _descending(sizes):
        if left == empty:  # one client each, or a slow slot would get none
            groups = [(s, sorted(entry for entry in group if not entry[0])) for s, group in groups]
            groups, room, empty = [entry for entry in groups if entry[1]], [1] * clusters, 0
        _, group = groups[0] if len(groups) == 1 else min(groups, key=partial(_done, size))
        load, n = group[0]
        assignment[k] = n
        empty -= not load
        room[n] -= 1
        if room[n]:
            heapq.heapreplace(group, (load + size, n))
        else:
            heapq.heappop(group)
            groups = [entry for entry in groups if entry[1]]
    return assignment


def _done(size: int, group: Group) -> tuple[float, int]:
    """When a group's lightest cluster would be done with one more client of this size, and which that is."""
    speed, clusters = group
    load, n = clusters[0]
    return (load + size) / speed, n


def greedy(fleet: Fleet, clusters: int, speeds: Speeds | None = None) -> IntArray:
    """Largest client first, each into the cluster that, with it, holds least of what it brings, for its slot's speed.

    A cluster holds much of a class in proportion to that class's global share. All samples together count as one more
    class, so that clusters balance even where classes can't.
    """
    assert fleet.histograms is not None
    held = fleet.histograms[:, fleet.histograms.sum(axis=0) > 0]
    brings = np.column_stack([held, fleet.counts]).astype(np.float64)
    per_share = fleet.samples / brings.sum(axis=0)
    loads = np.zeros((clusters, brings.shape[1]))
    assignment = np.empty(fleet.clients, dtype=np.int64)
    slowness = 1 / relative(speeds, clusters)
    behind = slowness - 1
    empty = clusters
    for left, k, _ in _descending(fleet.counts):
        weights = brings[k] * per_share
        # what the client itself adds counts only as far as slots differ, so equal ones compare loads to the last bit
        held_with = loads @ weights * slowness + brings[k] @ weights * behind
        if left == empty:
            held_with[loads[:, -1] > 0] = np.inf
        n = int(held_with.argmin())
        assignment[k] = n
        empty -= not loads[n, -1]
        loads[n] += brings[k]
    return assignment


def round_robin(fleet: Fleet, clusters: int, speeds: Speeds | None = None) -> IntArray:
    """In turn; a fast slot's turn comes more often."""
    return largest_first(np.ones_like(fleet.counts), clusters, speeds)


def _descending(sizes: IntArray) -> Iterator[tuple[int, int, int]]:
    """How many clients are left, the next one, and its size."""
    order = np.argsort(-sizes, kind="stable")
    return zip(range(len(sizes), 0, -1), order.tolist(), sizes[order].tolist(), strict=True)
