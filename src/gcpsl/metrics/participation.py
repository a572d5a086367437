"""Who takes part in one epoch's rounds, in both of the paper's countings.

*Ran* counts the rounds that clusters really ran (the paper's simulator): a client slot is a client of a
cluster in one of that cluster's rounds. *System* counts K clients over the horizon of the longest cluster
(its real execution): a client whose cluster waits at the barrier is inactive. Sequential execution is
counted over the same horizon: the same work in another order has the same participation, as the paper's
sequential control prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gcpsl.fleet import IntArray
from gcpsl.metrics.schedule import Schedule
from gcpsl.sampling import EpochPlan


@dataclass(frozen=True)
class Participation:
    """One epoch, observed (`active` is whole) or expected (`active` is a mean).

    Workloads that draw from one global batch (draw = 'all') are a single workload here, with all K clients
    and the global batch: a client in several shares of one round took part once.
    """

    schedule: Schedule
    cluster_clients: tuple[int, ...]
    batch_size: int
    active: float
    """A: the sum over rounds of the clients that supply at least one sample."""

    def __post_init__(self) -> None:
        assert len(self.cluster_clients) == self.schedule.workloads
        assert 0 <= self.active <= self.client_rounds * (1 + 1e-9)

    @property
    def clients(self) -> int:
        """K."""
        return sum(self.cluster_clients)

    @property
    def client_rounds(self) -> int:
        """R: the sum over clusters of rounds times clients, every one of which applies an update."""
        return sum(r * c for r, c in zip(self.schedule.rounds, self.cluster_clients, strict=True))

    @property
    def _system_slots(self) -> int:
        return self.clients * self.schedule.rounds_max

    @property
    def direct_ran(self) -> float:
        """Direct data participation over the cluster-rounds that ran."""
        return self.active / self.client_rounds

    @property
    def inactivity_ran(self) -> float:
        return 1 - self.direct_ran

    @property
    def direct_system(self) -> float:
        """Direct data participation over K times the longest cluster's rounds."""
        return self.active / self._system_slots

    @property
    def inactivity_system(self) -> float:
        return 1 - self.direct_system

    @property
    def model_update(self) -> float:
        """Model-update participation over the system horizon: only waiting clients miss an update."""
        return self.client_rounds / self._system_slots

    @property
    def local_compute_inactivity(self) -> float:
        """Client slots of the system horizon without a forward or backward pass.

        In GPSL a client computes exactly when it supplies samples, so this equals the system inactivity.
        """
        return self.inactivity_system

    @property
    def bounds(self) -> InactivityBounds:
        return inactivity_bounds(self.cluster_clients, self.batch_size)


@dataclass(frozen=True)
class InactivityBounds:
    """The least inactivity that the paper's equations allow, whatever is drawn."""

    clusters: tuple[float, ...]
    system: float

    @property
    def participation(self) -> float:
        """The most direct participation the system can reach: min(1, N*B/K)."""
        return 1 - self.system


def inactivity_bounds(cluster_clients: Sequence[int], batch_size: int) -> InactivityBounds:
    """1 - B/|C_n| in each cluster and 1 - N*B/K for the system, where that is above 0."""
    clients, workloads = sum(cluster_clients), len(cluster_clients)
    return InactivityBounds(
        clusters=tuple(max(0.0, 1 - batch_size / members) for members in cluster_clients),
        system=max(0.0, 1 - workloads * batch_size / clients),
    )


def batch_ids(plans: Sequence[EpochPlan], shared: bool) -> IntArray:
    """The batch of each of the plans' entries, one after another; shared plans' rounds are one batch each."""
    firsts = [0] * len(plans) if shared else np.cumsum([0, *(plan.rounds for plan in plans)])[:-1]
    return np.concatenate(
        [
            first + np.repeat(np.arange(plan.rounds), np.diff(plan.bounds))
            for first, plan in zip(firsts, plans, strict=True)
        ]
    )


def observed(
    plans: Sequence[EpochPlan], cluster_clients: Sequence[int], batch_size: int, *, shared: bool = False
) -> Participation:
    """What the epoch's plans, one per workload, make of participation.

    With `shared`, the workloads' rounds are shares of one global batch over all clients: give
    `cluster_clients` as [K] and `batch_size` as the global batch.
    """
    owners = np.concatenate([plan.clients for plan in plans])
    entries = batch_ids(plans, shared) * (owners.max(initial=0) + 1) + owners
    rounds = tuple(plan.rounds for plan in plans)
    return Participation(
        schedule=Schedule((max(rounds),) if shared else rounds),
        cluster_clients=tuple(int(members) for members in cluster_clients),
        batch_size=batch_size,
        active=len(np.unique(entries)),
    )
