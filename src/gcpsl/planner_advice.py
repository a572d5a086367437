"""Which N to take, and why: the paper's operating region as four plain rules over a plan's rows.

1. The bound. More workloads raise participation at most to min(1, N*B/K). From the first N with N*B >= K on,
   another cluster can only make the clusters smaller: the paper gains accuracy up to there (N = 4 at K = 256,
   B = 64), loses about 1 point at twice that N and 3.5 points at four times.
2. Clients per cluster. A batch is drawn from its own cluster alone. With B = 64 the paper loses about 1 point
   with B/2 clients per cluster and 3.5 points with B/4, whichever rule assigned them.
3. Label diversity. Where histograms are known, the expected batch deviation may not rise far above that of
   one workload over all clients. The paper's 0.43 at N = 8 is 1.5 times it.
4. Efficiency. Slots that wait at the barrier are paid for and learn nothing.

The largest N asked that keeps all four under some rule wins. At that N, of the rules whose expected
participation is within a point of the best, the one that discloses least wins. Where slots have speeds, waiting
and participation are counted in time. Knows no accuracy: it judges by the paper's evidence, which is one model
and two data sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gcpsl.clustering import discloses

if TYPE_CHECKING:
    from gcpsl.planner import Row

CLIENTS_PER_SAMPLE_MIN = 0.5
DEVIATION_RISE_MAX = 1.5
EFFICIENCY_MIN = 0.8
PARTICIPATION_TIE = 0.01
_ASKING_MORE = tuple(discloses(rule) for rule in ("random", "size_balanced", "label_aware"))


@dataclass(frozen=True)
class RuledOut:
    """An N that was asked and not recommended, with what speaks against its best row."""

    workloads: int
    rule: str
    reason: str


@dataclass(frozen=True)
class Recommendation:
    """An N and a rule, the reason in words, and what speaks against each larger N asked."""

    workloads: int
    rule: str
    reason: str
    ruled_out: tuple[RuledOut, ...]


def recommend(rows: Sequence[Row], clients: int, batch_size: int) -> Recommendation:
    """The advice for these rows; the first must be N = 1, one workload over all clients."""
    single = rows[0]
    assert single.workloads == 1
    asked = sorted({row.workloads for row in rows})
    covering = next((n for n in asked if n * batch_size >= clients), None)
    faults = {id(row): _faults(row, single, covering, clients, batch_size) for row in rows}
    chosen = _choose([row for row in rows if not faults[id(row)]])
    ruled_out = []
    for workloads in (n for n in asked if n > chosen.workloads):
        peers = [row for row in rows if row.workloads == workloads]
        nearest = min(peers, key=lambda row: (len(faults[id(row)]), row.times.epoch_time if row.times else 0))
        ruled_out.append(RuledOut(workloads, nearest.rule, "; ".join(faults[id(nearest)])))
    reason = _reason(chosen, single, asked, clients, batch_size)
    return Recommendation(chosen.workloads, chosen.rule, reason, tuple(ruled_out))


def _faults(row: Row, single: Row, covering: int | None, clients: int, batch_size: int) -> list[str]:
    """What speaks against a row; nothing ever does against N = 1."""
    if row.workloads == 1:
        return []
    found = []
    if covering is not None and row.workloads > covering:
        found.append(
            f"N x B reaches K = {clients:,} at N = {covering} already: more clusters can't raise the bound, "
            "they only grow smaller"
        )
    if row.clients_min < CLIENTS_PER_SAMPLE_MIN * batch_size:
        few = f"{row.clients_min} client{'s' * (row.clients_min > 1)}"
        found.append(f"a cluster has {few}, fewer than half a batch of {batch_size}")
    if row.deviation is not None and single.deviation is not None:
        rise = row.deviation / single.deviation if single.deviation > 0 else 1.0
        if rise > DEVIATION_RISE_MAX:
            found.append(
                f"even with {row.rule}, batches stray {rise:.2f} times as far from the global labels as one "
                f"workload's, above {DEVIATION_RISE_MAX}"
            )
    if row.efficiency < EFFICIENCY_MIN:
        found.append(
            f"with {row.rule}, slots wait at the barrier for {1 - row.efficiency:.0%} of their rounds, "
            f"above {1 - EFFICIENCY_MIN:.0%}"
        )
    return found


def _choose(sound: Sequence[Row]) -> Row:
    largest = [row for row in sound if row.workloads == max(row.workloads for row in sound)]
    best = max(_participation(row) for row in largest)
    tied = [row for row in largest if _participation(row) >= best - PARTICIPATION_TIE]
    return min(tied, key=_disclosure)


def _participation(row: Row) -> float:
    """Over the epoch's time, which with slots of unequal speeds is not that of the longest cluster's rounds."""
    return row.participation_system * (row.rounds_max / row.epoch_time)


def _disclosure(row: Row) -> int:
    """More is worse; what a rule of the user's own reads is not known, and so the most."""
    return _ASKING_MORE.index(row.discloses) if row.discloses in _ASKING_MORE else len(_ASKING_MORE)


def _reason(row: Row, single: Row, asked: Sequence[int], clients: int, batch_size: int) -> str:
    if row.workloads == 1:
        return _reason_for_one(row, asked, clients, batch_size)
    parts = [
        f"expected participation rises from {single.participation_system:.1%} with one workload to "
        f"{row.participation_system:.1%}, of {row.participation_bound:.1%} possible",
        f"an epoch takes {_time(row, single)}, at {row.efficiency:.0%} efficiency",
        f"every cluster keeps at least {row.clients_min:,} clients",
    ]
    if row.deviation is not None and single.deviation:
        rise = row.deviation / single.deviation
        parts.append(f"batches stray {rise:.2f} times as far from the global labels as one workload's")
    if row.workloads == asked[-1] and row.workloads * batch_size < clients:
        until = -(-clients // batch_size)
        parts.append(f"it is the largest N asked, and the bound would rise until N = {until:,}")
    return "; ".join(parts)


def _time(row: Row, single: Row) -> str:
    if row.times is None or row.times_ignoring is None:
        return f"{row.rounds_max:,} rounds instead of {single.rounds_max:,}"
    ignoring = f" ({row.times_ignoring.epoch_time:,.1f} if speeds were ignored)" * (row.times != row.times_ignoring)
    return f"the time of {row.epoch_time:,.1f} rounds on the fastest slot instead of {single.epoch_time:,.1f}{ignoring}"


def _reason_for_one(row: Row, asked: Sequence[int], clients: int, batch_size: int) -> str:
    if batch_size >= clients:
        return (
            f"one batch of {batch_size:,} has room for all {clients:,} clients, so clusters can't raise the "
            "participation bound; they would buy fewer rounds only, at the price of label diversity"
        )
    if len(asked) == 1:
        return f"no other N was asked; expected participation is {row.participation_system:.1%}"
    return f"every larger N asked costs too much; expected participation is {row.participation_system:.1%}"
