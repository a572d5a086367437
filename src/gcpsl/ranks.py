"""The processes that share a run: which workloads are whose, and what they do together.

A process by itself is `Alone`; several are `runtimes.slots.Slots`. Knows nothing of models, rounds or networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from gcpsl import fusion


@dataclass(frozen=True)
class Meeting:
    """What every rank said when it came, and how long this one waited for the last."""

    words: tuple[str, ...] = ("",)
    waited_s: float = 0.0


class Ranks(Protocol):
    """This process among all that share the run. Every rank calls the same things in the same order."""

    rank: int
    size: int

    def meet(self, place: str, word: str = "") -> Meeting:
        """Wait until all are here. Raises `RunError` where somebody doesn't come in time, naming who and the place."""
        ...

    def fuse(self, replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]) -> None:
        """`fusion.fuse` of all ranks' replicas, of which these are this rank's: to the same bits, wherever they are.

        The weights are everybody's.
        """
        ...

    def total(self, values: Tensor) -> Tensor:
        """The sum over ranks of float64 values, each of which only one rank has and the others leave zero."""
        ...

    def close(self) -> None:
        """Leave the others. Nothing else may be called then."""
        ...


class Alone:
    """One process, which runs all workloads."""

    rank, size = 0, 1

    def meet(self, place: str, word: str = "") -> Meeting:  # noqa: ARG002 - there is nobody to wait for
        return Meeting((word,))

    def fuse(self, replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]) -> None:
        fusion.fuse(replicas, weights, into)

    def total(self, values: Tensor) -> Tensor:
        return values

    def close(self) -> None:
        """There is nobody to leave."""


def own_workloads(rank: int, size: int, workloads: int) -> range:
    """The workloads that a rank of so many runs: neighbours, as evenly as it goes."""
    return range(rank * workloads // size, (rank + 1) * workloads // size)
