"""When a run first reached an accuracy, and what that took: R_q, t_q and GPU-worker-minutes.

Reads one run's per-epoch history; knows nothing of how it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EpochMark:
    """One epoch's end: the accuracy there in %, the epoch's schedule slots and the seconds it took, all told.

    `slots` is `Schedule.slots(execution)`; `payload_bytes` follows whichever formula is asked for.
    """

    accuracy: float
    slots: int
    elapsed_s: float
    payload_bytes: float = 0.0


@dataclass(frozen=True)
class Crossing:
    """The first epoch (counted from 1) at or above the target, with everything accumulated through it."""

    target: float
    epoch: int
    rounds: int
    """R_q: schedule slots through the crossing epoch."""
    time_s: float
    """t_q."""
    worker_minutes: float
    """t_q times the workers allocated, waiting included."""
    payload_bytes: float


def crossing(history: Sequence[EpochMark], target: float, workers: int) -> Crossing | None:
    """Where the history first reaches the target; None where it never does."""
    epoch = next((m for m, record in enumerate(history, start=1) if record.accuracy >= target), None)
    if epoch is None:
        return None
    through = history[:epoch]
    time_s = sum(record.elapsed_s for record in through)
    return Crossing(
        target=target,
        epoch=epoch,
        rounds=sum(record.slots for record in through),
        time_s=time_s,
        worker_minutes=time_s * workers / 60,
        payload_bytes=sum(record.payload_bytes for record in through),
    )
