"""The interface of every runtime, and what goes in and out of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from gcpsl.config import Config
from gcpsl.data import FederatedData
from gcpsl.models import SplitModel
from gcpsl.ranks import Alone, Ranks
from gcpsl.schedule import EpochSchedule


@dataclass(frozen=True)
class Job:
    """What a runtime is given: the settings, the clients' data, the model all replicas start from, whom to tell of its
    set-up, and this process's place among those that share the run. `data.train` may hold only the samples of this
    process's workloads; schedules then count in them."""

    config: Config
    data: FederatedData
    model: SplitModel
    say: Callable[[str], None] = lambda _: None
    ranks: Ranks = field(default_factory=Alone)


@dataclass(frozen=True)
class Score:
    """The post-fusion model on one set of samples."""

    accuracy: float  # in %
    loss: float


@dataclass
class EpochProgress:
    """How far an epoch has come with some workloads. A checkpoint inside an epoch holds it, so resuming is exact."""

    rounds_done: list[int]
    loss_sums: list[float]
    busy_s: list[float]
    phases_done: int = 0
    local_s: float = 0.0  # wall time of the rounds
    fusion_s: float = 0.0
    drifts: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)  # at barriers, by rank; a rank knows its own

    @classmethod
    def start(cls, workloads: int, ranks: int = 1) -> EpochProgress:
        return cls([0] * workloads, [0.0] * workloads, [0.0] * workloads, waits_s=[0.0] * ranks)

    def part(self, numbers: range, ranks: Ranks) -> EpochProgress:
        """What a rank with these workloads knows of everybody's progress."""
        own = slice(numbers.start, numbers.stop)
        waits_s = [0.0] * ranks.size
        if len(self.waits_s) == ranks.size:
            waits_s[ranks.rank] = self.waits_s[ranks.rank]
        return replace(
            self,
            rounds_done=self.rounds_done[own],
            loss_sums=self.loss_sums[own],
            busy_s=self.busy_s[own],
            drifts=list(self.drifts),
            waits_s=waits_s,
        )

    def everyones(self, numbers: range, workloads: int, ranks: Ranks) -> EpochProgress:
        """The progress of all workloads, put together from every rank's; its time is that of the slowest."""
        lengths = [workloads] * 3 + [ranks.size] * 2
        mine = torch.zeros(sum(lengths), dtype=torch.float64)
        own, at = slice(numbers.start, numbers.stop), slice(ranks.rank, ranks.rank + 1)
        known = (
            (own, self.rounds_done),
            (own, self.loss_sums),
            (own, self.busy_s),
            (at, [self.local_s]),
            (at, [self.waits_s[ranks.rank]]),
        )
        for part, (place, values) in zip(mine.split(lengths), known, strict=True):
            part[place] = torch.tensor(values, dtype=torch.float64)
        rounds_done, loss_sums, busy_s, local_s, waits_s = (part.tolist() for part in ranks.total(mine).split(lengths))
        return replace(
            self,
            rounds_done=[int(rounds) for rounds in rounds_done],
            loss_sums=loss_sums,
            busy_s=busy_s,
            local_s=max(local_s),
            waits_s=waits_s,
        )


class Interrupted(Exception):  # noqa: N818 - it is no error
    """Raised between two rounds to leave an epoch; the runtime's state and progress are then consistent."""


class Observer(Protocol):
    """Whoever follows the rounds. May raise `Interrupted`, once `progress` counts what is told of."""

    def rounds_done(self, loss: float, rounds: int) -> None: ...

    def stop_asked(self) -> bool:
        """Whether this rank is to stop. Where ranks take every round together, all do after the round that follows."""
        ...

    def at_barrier(self, place: str) -> None:
        """All rounds up to a barrier are done here; returns once they are on every rank."""
        ...


class Runtime(Protocol):
    """Executes epochs on replicas that it owns. Every implementation agrees with the eager one.

    With several ranks each has the replicas of its own workloads, and `state` is of these. Everything else is of the
    whole run, and all ranks call it in the same order.
    """

    device: torch.device

    def prepare(self, schedule: EpochSchedule) -> None:
        """Do now what a first epoch like this one would have to do before its first round."""
        ...

    def run_epoch(self, schedule: EpochSchedule, lr: float, progress: EpochProgress, observer: Observer) -> None:
        """Do what `progress` says is left of the epoch, and keep `progress` true all along."""
        ...

    def evaluate(self, split: str) -> Score:
        """The fused model on 'validation' or 'test'."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on, as named flat tensors."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None: ...

    def model_state(self) -> dict[str, Tensor]:
        """The fused model under the unsplit network's own names."""
        ...

    @property
    def workers(self) -> int:
        """How many processes or GPUs are allocated to the run."""
        ...

    def memory_bytes_max(self) -> int:
        """The most memory this process has held: on the GPU where one is used, else resident."""
        ...
