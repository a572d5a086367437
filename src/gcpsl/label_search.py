"""The local search of label-aware clustering: best single moves, then pair swaps, until neither lowers the objective.

Knows histograms and an assignment; nothing of rules, seeds or settings. Costs are in samples: |D| times the paper's J.

Why it is fast and still exact: a cluster's weighted divergence is convex in its histogram, so a quadratic that never
lies above it is known in closed form, and for every pair of clients of two clusters that is one matrix product. Only
pairs whose bound lies below the present cost are computed in full; no improvement can hide among the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, Self

import numpy as np

from gcpsl.fleet import IntArray
from gcpsl.speeds import FloatArray, Speeds, relative, target_samples

Optimum = Literal["nothing", "moves", "moves and swaps"]

IMPROVEMENT_MIN = 1e-12
"""What counts as lower, in units of J: far above rounding, far below a thousandth of a sample."""

_BATCH = 64
_CHUNK_ELEMENTS = 1 << 17
_FEW_ELEMENTS = 4096


def weighted_divergence(histograms: FloatArray, shares: FloatArray) -> FloatArray:
    """w_n JSD(p_n, p) in nats, for each histogram (last axis: classes) against the global shares p, all above 0."""
    expected = histograms.sum(axis=-1, keepdims=True) * shares
    middle = (histograms + expected) / 2
    present = np.maximum(histograms, np.finfo(np.float64).tiny)
    terms = histograms * np.log(present / middle) + expected * np.log(expected / middle)
    value: FloatArray = terms.sum(axis=-1) / 2
    return value


class Clients(NamedTuple):
    """Some clients: their histograms, and the histograms' sums."""

    x: FloatArray
    size: FloatArray


def exchange_bound(h: FloatArray, value: float, shares: FloatArray, leaving: Clients, entering: Clients) -> FloatArray:
    """[leaving, entering]: what a cluster's weighted divergence is at least, after one client leaves and one enters.

    The divergence is sum_c u_c F(h_c / u_c), with u = w p and F(t) = (t ln t - (1 + t) ln((1 + t) / 2)) / 2. Scaling
    h to the new w scales it alike; what remains of a client is y = x - |x| h / w, at constant w. There the function is
    a sum over classes, and F'' = 1 / (2 t (1 + t)) falls with t: with F'' at the largest t in reach, Taylor's
    quadratic stays below.
    """
    w = float(h.sum())
    w_min = max(1.0, w + entering.size.min() - leaving.size.max())
    w_max = w + entering.size.max() - leaving.size.min()
    share_max = np.minimum(1.0, (h + entering.x.max(axis=0)) / w_min)
    slope, curvature = _tangent(h / w / shares, share_max / shares, w_max * shares)

    per_sample = (value - slope @ h) / w
    y_out = leaving.x - leaving.size[:, None] * (h / w)
    y_in = entering.x - entering.size[:, None] * (h / w)
    curved = y_in * curvature
    out = y_out**2 @ curvature / 2 - leaving.x @ slope - leaving.size * per_sample
    into = np.einsum("kc,kc->k", y_in, curved) / 2 + entering.x @ slope + entering.size * per_sample
    bound: FloatArray = y_out @ curved.T
    np.subtract(into, bound, out=bound)
    bound += (value + out)[:, None]
    return bound


def _tangent(t: FloatArray, t_max: FloatArray, u_max: FloatArray) -> tuple[FloatArray, FloatArray]:
    """F' at t, and the least F'' / u up to t_max.

    At t = 0 the tangent is vertical. But no less than one sample can enter, so the chord to one sample stays below.
    """
    present = t > 0
    safe = np.where(present, t, 1.0)
    one = 1 / u_max
    chord = (np.log(one) * one - (1 + one) * np.log((1 + one) / 2) - np.log(2)) / (2 * one)
    slope = np.where(present, np.log(2 * safe / (1 + safe)) / 2, chord)
    reach = np.maximum(safe, t_max)
    return slope, np.where(present, 1 / (2 * reach * (1 + reach) * u_max), 0.0)


class Search:
    """An assignment on its way down. `descend` changes it; the counters say what that took.

    The cost of a cluster is |w_n - target| + weight * w_n * (JSD, or its square root where `distance`); targets are
    in proportion to `speeds`. A cluster is never left empty. `changes_max` bounds moves and swaps together.
    """

    def __init__(
        self,
        histograms: IntArray,
        clusters: int,
        assignment: IntArray,
        weight: float = 1.0,
        distance: bool = False,
        changes_max: int | None = None,
        speeds: Speeds | None = None,
    ) -> None:
        x = histograms[:, histograms.sum(axis=0) > 0].astype(np.float64)
        self.clients = Clients(x, x.sum(axis=1))
        self.samples = float(x.sum())
        self.shares: FloatArray = x.sum(axis=0) / self.samples
        self.clusters = clusters
        self.targets = target_samples(self.samples, relative(speeds, clusters))
        self.start, self.assignment = assignment, assignment.copy()
        self.h = np.stack([x[assignment == n].sum(axis=0) for n in range(clusters)])
        self.w: FloatArray = self.h.sum(axis=1)
        self.divergence = weighted_divergence(self.h, self.shares)
        self.weight, self.distance = weight, distance
        self.changes_left = np.inf if changes_max is None else changes_max
        self.moves = self.swaps = self.evaluations = 0
        self.optimum_of: Optimum = "nothing"
        self._least = IMPROVEMENT_MIN * self.samples

    @property
    def cost(self) -> float:
        return float(self._costs().sum())

    def descend(self, swaps: bool) -> Self:
        """Down to where no single move (and, with `swaps`, no exchange of two clients) lowers the cost."""
        self._descend_by_moves()
        while swaps and self.changes_left > 0 and self._sweep_swaps():
            self._descend_by_moves()
        reached: Optimum = "moves and swaps" if swaps else "moves"
        self.optimum_of = reached if self.changes_left > 0 else "nothing"
        return self

    def _cost(self, n: IntArray | int | slice, divergence: FloatArray, w: FloatArray) -> FloatArray:
        return np.abs(w - self.targets[n]) + self._composition(divergence, w)

    def _composition(self, divergence: FloatArray, w: FloatArray) -> FloatArray:
        if self.distance:
            return self.weight * np.sqrt(np.maximum(divergence, 0.0) * w)
        return self.weight * divergence

    def _costs(self) -> FloatArray:
        return self._cost(slice(None), self.divergence, self.w)

    def _exact(self, n: IntArray | int, h: FloatArray) -> FloatArray:
        return self._cost(n, weighted_divergence(h, self.shares), h.sum(axis=-1))

    def _put(self, clients: tuple[int, ...], source: int, target: int) -> None:
        for client in clients:
            self.assignment[client] = target
            self.h[source] -= self.clients.x[client]
            self.h[target] += self.clients.x[client]

    def _refresh(self, *clusters: int) -> None:
        for n in clusters:
            self.w[n] = self.h[n].sum()
            self.divergence[n] = weighted_divergence(self.h[n], self.shares)

    def _descend_by_moves(self) -> None:
        """The paper's loop: the best of all single moves, as long as it lowers the cost."""
        entering = np.empty((self.clusters, len(self.assignment)))
        leaving = np.empty(len(self.assignment))
        changed: Iterable[int] = range(self.clusters)
        while self.changes_left > 0:
            for n in changed:
                self._bound_moves(n, entering, leaving)
            move = self._best_move(entering + leaving)
            if move is None:
                return
            client, target = move
            changed = (int(self.assignment[client]), target)
            self._put((client,), *changed)
            self._refresh(*changed)
            self.moves += 1
            self.changes_left -= 1

    def _bound_moves(self, n: int, entering: FloatArray, leaving: FloatArray) -> None:
        """What each client's entering (or, for members, leaving) adds at least to cluster n's cost."""
        h, w, value = self.h[n], self.w[n], float(self.divergence[n])
        x, size = self.clients
        nobody = Clients(np.zeros((1, x.shape[1])), np.zeros(1))
        present = self._costs()[n]
        rows = max(1, _CHUNK_ELEMENTS // x.shape[1])
        for at in (slice(k, k + rows) for k in range(0, len(x), rows)):
            bound = exchange_bound(h, value, self.shares, nobody, Clients(x[at], size[at]))[0]
            entering[n, at] = self._cost(n, bound, w + size[at]) - present
        members = np.flatnonzero(self.assignment == n)
        entering[n, members] = np.inf
        leaving[members] = np.inf
        if len(members) > 1:
            bound = exchange_bound(h, value, self.shares, self._some(members), nobody)[:, 0]
            leaving[members] = self._cost(n, bound, w - size[members]) - present

    def _some(self, clients: IntArray) -> Clients:
        return Clients(self.clients.x[clients], self.clients.size[clients])

    def _best_move(self, bounds: FloatArray) -> tuple[int, int] | None:
        """The (client, target) that lowers the cost most; only moves whose bound beats the best so far are computed."""
        lowest, best = -self._least, None
        flat = bounds.ravel()
        near = np.atleast_1d(flat.argmin())
        while (near := near[flat[near] < lowest]).size:
            target, client = np.divmod(near, len(self.assignment))
            change = self._changes(self.assignment[client], target, -self.clients.x[client])
            k = int(change.argmin())
            if change[k] < lowest:
                lowest, best = float(change[k]), (int(client[k]), int(target[k]))
            flat[near] = np.inf
            near = np.flatnonzero(flat < lowest)[:_BATCH]
        return best

    def _changes(self, a: IntArray | int, b: IntArray | int, delta: FloatArray) -> FloatArray:
        """Exactly what moving `delta` (one row per candidate) from b's histograms to a's adds to the cost."""
        self.evaluations += len(delta)
        costs = self._costs()
        after: FloatArray = self._exact(a, self.h[a] + delta) + self._exact(b, self.h[b] - delta)
        return after - (costs[a] + costs[b])

    def _sweep_swaps(self) -> bool:
        """Swap between every two clusters until a whole sweep finds nothing; whether anything changed."""
        before = self.swaps
        changed_at = [0] * self.clusters
        clean_at = {(a, b): -1 for a in range(self.clusters) for b in range(a + 1, self.clusters)}
        while True:
            start = self.swaps
            for (a, b), at in clean_at.items():
                if at >= max(changed_at[a], changed_at[b]):
                    continue
                while self._swap_between(a, b):
                    changed_at[a] = changed_at[b] = self.swaps
                clean_at[a, b] = self.swaps
            if self.swaps == start or self.changes_left <= 0:
                return self.swaps > before

    def _swap_between(self, a: int, b: int) -> bool:
        """Apply the most promising swaps between two clusters; False where no pair of their clients lowers the cost."""
        applied = False
        in_a = np.flatnonzero(self.assignment == a)
        rows = max(1, 2 * _CHUNK_ELEMENTS * self.clusters // len(self.assignment))
        for some_a in (in_a[k : k + rows] for k in range(0, len(in_a), rows)):
            in_b = np.flatnonzero(self.assignment == b)
            i, j = np.divmod(self._promising(a, b, some_a, in_b), len(in_b))
            batch = max(_BATCH, _FEW_ELEMENTS // self.clients.x.shape[1])
            for at in range(0, len(i), batch):
                if self._apply_swaps(a, b, some_a[i[at : at + batch]], in_b[j[at : at + batch]]):
                    applied = True
                    break
        return applied

    def _promising(self, a: int, b: int, in_a: IntArray, in_b: IntArray) -> IntArray:
        """The pairs (as a flat index) that may lower the cost, best bound first.

        Few pairs are all promising: to compute them is cheaper than to bound them.
        """
        pairs = len(in_a) * len(in_b)
        if pairs * self.clients.x.shape[1] <= _FEW_ELEMENTS:
            return np.arange(pairs)
        change = self._swap_bounds(a, b, self._some(in_a), self._some(in_b)).ravel()
        near = np.flatnonzero(change < -self._least)
        return near[np.argsort(change[near], kind="stable")]

    def _swap_bounds(self, a: int, b: int, in_a: Clients, in_b: Clients) -> FloatArray:
        """[clients of a, clients of b]: what swapping them adds at least to the cost."""
        p, value = self.shares, self.divergence
        bound_a = exchange_bound(self.h[a], float(value[a]), p, in_a, in_b)
        bound_b = exchange_bound(self.h[b], float(value[b]), p, in_b, in_a).T
        gained = in_b.size - in_a.size[:, None]
        change = self._composition(bound_a, self.w[a] + gained)
        change += self._composition(bound_b, self.w[b] - gained)
        # |s| + |t| = max(|s + t|, |s - t|), and the swap keeps s + t: one pass fewer over the pairs
        over_a, over_b = self.w[[a, b]] - self.targets[[a, b]]
        gained *= 2
        gained += over_a - over_b
        np.abs(gained, out=gained)
        np.maximum(gained, abs(over_a + over_b), out=gained)
        change += gained
        change -= self._costs()[[a, b]].sum()
        return change

    def _apply_swaps(self, a: int, b: int, from_a: IntArray, from_b: IntArray) -> bool:
        """The best of these swaps, then the best of those left, as long as one lowers the cost."""
        x = self.clients.x
        applied = False
        while len(from_a) and self.changes_left > 0:
            change = self._changes(a, b, x[from_b] - x[from_a])
            k = int(change.argmin())
            if change[k] >= -self._least:
                break
            self._put((int(from_a[k]),), a, b)
            self._put((int(from_b[k]),), b, a)
            self._refresh(a, b)
            applied = True
            self.swaps += 1
            self.changes_left -= 1
            left = (from_a != from_a[k]) & (from_b != from_b[k]) & (change < 0)
            from_a, from_b = from_a[left], from_b[left]
        return applied
