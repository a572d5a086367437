"""A schedule is data: who draws which batches, and where the workloads synchronise. The nine regimes are settings.

Turns the four axes of `ScheduleConfig` into an epoch that any runtime can execute. Knows nothing of models or time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gcpsl.config import ScheduleConfig
from gcpsl.errors import ConfigError, nearest
from gcpsl.fleet import IntArray
from gcpsl.sampling import EpochPlan, Holdings, epoch_plan, sharded_plans


@dataclass(frozen=True)
class Phase:
    """Rounds `start` to `stop` of every workload that has them, and then a barrier that fuses, or does not."""

    start: int
    stop: int
    fuse: bool


@dataclass(frozen=True)
class EpochSchedule:
    """One epoch: each workload's rounds and clients, and the barriers between them.

    With `lockstep` the workloads take round t together and step on their batch-weighted mean gradient. `weights` are
    the shares of the samples by which replicas count in fusion, and `batches` the sizes by which gradients do: all
    workloads', also where this is the `part` of some.
    """

    epoch: int
    plans: tuple[EpochPlan, ...]
    members: tuple[IntArray, ...]
    phases: tuple[Phase, ...]
    lockstep: bool
    weights: tuple[float, ...]
    batches: tuple[IntArray, ...]
    numbers: range

    @property
    def rounds(self) -> tuple[int, ...]:
        return tuple(plan.rounds for plan in self.plans)

    def part(self, numbers: range) -> EpochSchedule:
        """What these workloads have to do."""
        own = slice(numbers.start, numbers.stop)
        return replace(self, plans=self.plans[own], members=self.members[own], numbers=numbers)

    def round_weights(self, t: int) -> list[float]:
        """Every workload's share of round t's samples; nothing where it has no such round."""
        sizes = [int(sizes[t]) if t < len(sizes) else 0 for sizes in self.batches]
        return [size / sum(sizes) for size in sizes]


REGIMES: dict[str, dict[str, str]] = {
    "gcpsl": {},
    "sequential": {"execution": "sequential"},
    "repartitioned": {"assignment": "redrawn"},
    "single": {"draw": "all"},
    "data_parallel": {"draw": "all", "synchronise": "step"},
    "sharded": {"draw": "all", "synchronise": "step"},
}


def regime(name: str, workloads: int, batch_size: int) -> ScheduleConfig:
    """The axes of a regime by name. `batch_size` is B: one workload's, which `sharded` divides by the workloads."""
    if name not in REGIMES:
        raise ConfigError(f"no regime '{name}': {nearest(name, REGIMES)}")
    if name == "single" and workloads != 1:
        raise ConfigError(f"regime 'single' has 1 workload, not {workloads}")
    if name == "sharded":
        if batch_size % workloads:
            raise ConfigError(
                f"regime 'sharded' can't divide a batch of {batch_size} over {workloads} workloads evenly"
            )
        batch_size //= workloads
    return ScheduleConfig.model_validate({"workloads": workloads, "batch_size": batch_size, **REGIMES[name]})


def cluster_members(assignment: IntArray, clusters: int) -> tuple[IntArray, ...]:
    return tuple(np.flatnonzero(assignment == n) for n in range(clusters))


def epoch_schedule(
    config: ScheduleConfig, holdings: Holdings, assignment: IntArray, *, seed: int, epoch: int
) -> EpochSchedule:
    """The epoch that these axes ask for, the same wherever it runs."""
    if config.draw == "all":
        plans = sharded_plans(holdings, config.workloads, config.batch_size, seed=seed, epoch=epoch)
        members = (np.arange(len(assignment)),) * config.workloads
    else:
        members = cluster_members(assignment, config.workloads)
        plans = tuple(
            epoch_plan(holdings, own, config.batch_size, seed=seed, cluster=n, epoch=epoch)
            for n, own in enumerate(members)
        )
    last, samples = max(plan.rounds for plan in plans), [len(plan.samples) for plan in plans]
    return EpochSchedule(
        epoch,
        plans,
        members,
        phases(config, last),
        lockstep=config.synchronise == "step",
        weights=tuple(count / sum(samples) for count in samples),
        batches=tuple(plan.sizes for plan in plans),
        numbers=range(len(plans)),
    )


def phases(config: ScheduleConfig, rounds: int) -> tuple[Phase, ...]:
    """An epoch always ends at a barrier; only `never` leaves the replicas there as they are."""
    every = config.synchronise if isinstance(config.synchronise, int) else rounds
    fuse = config.synchronise != "never"
    return tuple(Phase(start, min(start + every, rounds), fuse) for start in range(0, rounds, every))
