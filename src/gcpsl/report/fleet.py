"""A run's clients and plans, drawn again from its folder: who owned what, and who took part in an epoch's rounds.

Everything follows from the run's seed, so nothing of this is stored; that it is the run's own is checked against the
first epoch's record. Needs the data set's labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gcpsl.config import Config, DataConfig, override
from gcpsl.data import Dataset, FederatedData, federate
from gcpsl.data.sources import load
from gcpsl.errors import DataError, GcpslError
from gcpsl.fleet import Fleet, IntArray
from gcpsl.report.collect import Run
from gcpsl.sampling import Holdings
from gcpsl.schedule import epoch_schedule

MOVABLE = ("data.root", "partition.file")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A run's first epoch: `supplied[k, t]` samples of client k in round t, all workloads together."""

    run: Run
    fleet: Fleet
    assignment: IntArray | None
    """Client to cluster; none where all workloads draw from all clients."""
    supplied: IntArray


def drawn(run: Run, moved: Sequence[str] = ()) -> Drawn | str:
    """The run's first epoch, or why it can't be drawn again."""
    try:
        data = _data(run.config, moved)
    except GcpslError as error:
        return str(error)
    config = run.config
    stored = run.found.folder.read_json("assignment.json") or {}
    clusters: Mapping[str, int] = stored.get("assignment") or {}
    if config.schedule.draw == "cluster" and set(clusters) != set(data.fleet.ids):
        return f"the clients in '{run.path / 'assignment.json'}' are not those that the data gives"
    assignment = np.array([clusters.get(name, 0) for name in data.fleet.ids])
    holdings = Holdings.of(data.owners, data.fleet.clients)
    plans = epoch_schedule(config.schedule, holdings, assignment, seed=config.seed, epoch=1).plans
    supplied = np.zeros((data.fleet.clients, max(plan.rounds for plan in plans)), dtype=np.int64)
    for plan in plans:
        np.add.at(supplied, (plan.clients, np.repeat(np.arange(plan.rounds), plan.sizes)), 1)
    if tuple(plan.rounds for plan in plans) != run.records[0].rounds:
        return f"the data found is not what '{run.path}' was trained on: its rounds differ"
    if np.count_nonzero(supplied) != run.records[0].active_client_rounds:
        return f"the data found is not what '{run.path}' was trained on: other clients would have taken part"
    return Drawn(run, data.fleet, assignment if config.schedule.draw == "cluster" else None, supplied)


def _data(config: Config, moved: Sequence[str]) -> FederatedData:
    """The run's own data: where the caller says, where it was, or where data lies by default."""
    if moved:
        config = override(config, *moved)
    try:
        dataset = _loaded(config.data)
    except DataError:
        if config.data.root is None:
            raise
        dataset = _loaded(config.data.model_copy(update={"root": None}))
    return federate(config, dataset)


@lru_cache(maxsize=2)
def _loaded(config: DataConfig) -> Dataset:
    return load(config)
