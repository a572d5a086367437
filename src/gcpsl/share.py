"""What of a run is one rank's: its workloads, and the training samples that their clients hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from gcpsl.config import ScheduleConfig
from gcpsl.data import FederatedData, Samples
from gcpsl.errors import RunError
from gcpsl.fleet import IntArray
from gcpsl.ranks import Ranks, own_workloads
from gcpsl.schedule import EpochSchedule


@dataclass(frozen=True)
class Share:
    """`rows` are the samples it holds, in order; None is all of them."""

    numbers: range
    rows: IntArray | None

    @classmethod
    def of(cls, axes: ScheduleConfig, first: EpochSchedule, ranks: Ranks) -> Self:
        """A rank whose workloads may come to draw from any client holds everything."""
        numbers = own_workloads(ranks.rank, ranks.size, axes.workloads)
        if ranks.size == 1 or axes.draw == "all" or axes.assignment == "redrawn":
            return cls(numbers, None)
        return cls(numbers, np.sort(np.concatenate([plan.samples for plan in first.part(numbers).plans])))

    def data(self, data: FederatedData) -> FederatedData:
        """The data with no training samples but these."""
        if self.rows is None:
            return data
        return replace(data, train=Samples(data.train.images[self.rows], data.train.labels[self.rows]))

    def labels_only(self, data: FederatedData) -> FederatedData:
        """The data for whoever needs all labels, but no images: these are let go where others hold most of them."""
        if self.rows is None:
            return data
        nobodys: Any = np.broadcast_to(data.train.images[:1].copy(), data.train.images.shape)
        return replace(data, train=Samples(nobodys, data.train.labels))

    def schedule(self, whole: EpochSchedule) -> EpochSchedule:
        """What the rank's workloads have to do, counting in the samples that it holds."""
        part = whole.part(self.numbers)
        if self.rows is None:
            return part
        return replace(part, plans=tuple(replace(plan, samples=self._local(plan.samples)) for plan in part.plans))

    def _local(self, samples: IntArray) -> IntArray:
        """Where these samples stand among those that the rank holds."""
        assert self.rows is not None
        at = np.searchsorted(self.rows, samples)
        if (self.rows.take(at, mode="clip") != samples).any():
            raise RunError(
                "the clusters stored with the run are not those that its settings give here, whose samples each rank "
                "holds; continue it in one process, with: gcpsl runs resume NAME"
            )
        return at
