"""How many rounds each workload runs in an epoch, and what running them side by side can gain.

Counts rounds, not seconds: contention, fusion and evaluation are outside its knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Schedule:
    """One epoch's rounds per workload (the paper's r_n)."""

    rounds: tuple[int, ...]

    @property
    def workloads(self) -> int:
        return len(self.rounds)

    @property
    def rounds_max(self) -> int:
        """The longest workload's rounds: after these, a concurrent epoch reaches its barrier."""
        return max(self.rounds)

    @property
    def rounds_total(self) -> int:
        return sum(self.rounds)

    @property
    def speedup(self) -> float:
        """Ideal schedule speed-up over running the same workloads one after another; at most N."""
        return self.rounds_total / self.rounds_max

    @property
    def efficiency(self) -> float:
        """Ideal parallel efficiency: the share of the slots' rounds that is not spent waiting."""
        return self.speedup / self.workloads

    def slots(self, execution: Literal["concurrent", "sequential"]) -> int:
        """Update slots until the epoch's end: what R_q accumulates."""
        return self.rounds_max if execution == "concurrent" else self.rounds_total
