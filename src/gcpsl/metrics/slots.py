"""What an epoch takes on slots of different speeds, counted in rounds of the fastest.

Supposes that a slot's rounds all take equally long; fusion and evaluation are outside its knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gcpsl.speeds import Speeds, relative


@dataclass(frozen=True)
class SlotTimes:
    """One epoch of a workload per slot."""

    speeds: tuple[float, ...]
    """Relative to the fastest slot's."""
    epoch_time: float
    """All rounds and waiting, in rounds of the fastest slot; where slots are alike, the longest workload's rounds."""
    idle: tuple[float, ...]
    """The share of that time for which each slot waits for others."""
    speedup: float
    """All rounds, over those that the fastest slot alone could do in that time; at most the sum of `speeds`."""
    efficiency: float
    """`speedup` over its most: the share of the slots' capacity that isn't spent waiting."""


def slot_times(rounds: Sequence[int], speeds: Speeds | None, synchronise: str | int) -> SlotTimes:
    """The times of workloads with so many rounds, between whose barriers lie as many as `schedule.synchronise` says."""
    speed = relative(speeds, len(rounds))
    r = np.asarray(rounds)
    every = {"step": 1}.get(synchronise, r.max()) if isinstance(synchronise, str) else synchronise
    # phases are alike until a workload runs out of rounds, in the midst of one or at its end
    marks = np.unique(np.concatenate([[0], r // every, -(-r // every)]))
    done = np.clip(r - every * marks[:-1, None], 0, every)
    time = float((np.diff(marks) * (done / speed).max(axis=1)).sum())
    return SlotTimes(
        speeds=tuple(speed.tolist()),
        epoch_time=time,
        idle=tuple(np.maximum(0, 1 - r / speed / time).tolist()),
        speedup=float(r.sum() / time),
        efficiency=float(r.sum() / time / speed.sum()),
    )
