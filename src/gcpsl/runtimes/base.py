"""The interface of every runtime, and what goes in and out of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from gcpsl.config import Config
from gcpsl.data import FederatedData
from gcpsl.models import SplitModel
from gcpsl.schedule import EpochSchedule


@dataclass(frozen=True)
class Job:
    """What a runtime is given: the settings, the clients' data, the model all replicas start from, and whom to tell of
    its set-up."""

    config: Config
    data: FederatedData
    model: SplitModel
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Score:
    """The post-fusion model on one set of samples."""

    accuracy: float  # in %
    loss: float


@dataclass
class EpochProgress:
    """How far an epoch has come. A checkpoint taken inside an epoch holds it, so that resuming is exact."""

    rounds_done: list[int]
    loss_sums: list[float]
    busy_s: list[float]
    phases_done: int = 0
    local_s: float = 0.0  # wall time of the rounds
    fusion_s: float = 0.0
    drifts: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, workloads: int) -> EpochProgress:
        return cls([0] * workloads, [0.0] * workloads, [0.0] * workloads)


class Interrupted(Exception):  # noqa: N818 - it is no error
    """Raised between two rounds to leave an epoch; the runtime's state and progress are then consistent."""


class Observer(Protocol):
    """Whoever follows the rounds. May raise `Interrupted`, once `progress` counts the rounds told of."""

    def rounds_done(self, loss: float, rounds: int) -> None: ...


class Runtime(Protocol):
    """Executes epochs on replicas that it owns. Every implementation agrees with the eager one."""

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
