"""Which clients train together: the paper's three rules, and its objective J.

A rule sees the fleet (sample counts, class histograms), never a sample, and knows nothing of batches or models. It
fixes every client's cluster before training. A rule of your own is one function of the type `Rule`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcpsl.config import ClusteringConfig
from gcpsl.dealing import greedy, largest_first, round_robin
from gcpsl.errors import ConfigError, GcpslError, nearest
from gcpsl.fleet import Fleet, IntArray
from gcpsl.label_search import Optimum, Search, weighted_divergence
from gcpsl.plugins import resolve
from gcpsl.seeds import Purpose, stream
from gcpsl.speeds import FloatArray, Speeds, relative, target_samples

Rule = Callable[[Fleet, int, np.random.Generator], IntArray]
"""(fleet, clusters N, this run's random stream) -> the cluster, 0..N-1, of each client.

One with a parameter `speeds` is given the slots' there, where the settings name any: N numbers, the fastest being 1.
"""

SWAP_CLIENTS_MAX = 30_000
"""Label-aware clustering looks at all K^2 / 2 swaps; in a larger fleet, where that takes minutes, only at moves."""

SMALL_CLIENTS_MAX = 64
"""With few clients a local optimum can be a poor one; and searching from every start takes milliseconds."""


@dataclass(frozen=True)
class Objective:
    """The paper's J and its two parts; 0 is perfect."""

    balance: float
    composition: float

    @property
    def total(self) -> float:
        return self.balance + self.composition


@dataclass(frozen=True)
class ObjectiveReport:
    """The paper's J at the start of a search and at its end (the same, where the rule does not search), its balance
    being that which the slots' speeds ask for.

    `optimum_of` says of which neighbourhood the end is a local optimum: no single move, or no single move and no swap
    of two clients, lowers what the rule minimises. It is `nothing` where the rule does not search or was stopped.
    """

    before: Objective
    after: Objective
    moves: int = 0
    swaps: int = 0
    evaluations: int = 0
    optimum_of: Optimum = "nothing"
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, eq=False)
class Clustering:
    """The assignment of every client to one of `clusters`; the report is None where no histograms were disclosed."""

    assignment: IntArray
    clusters: int
    report: ObjectiveReport | None


def cluster(
    config: ClusteringConfig, fleet: Fleet, clusters: int, seed: int, redraw: int = 0, rule: Rule | None = None
) -> Clustering:
    """Assign the clients by `rule`, or else by the rule that the config names. No cluster is left empty.

    With `config.speeds` the clusters of slow slots get less; a rule that can't see to that is refused. Reproducible
    from its arguments; only a rule that draws at random heeds `seed` and `redraw` (how many assignments were drawn
    before in this run).
    """
    if not 1 <= clusters <= fleet.clients:
        raise ConfigError(
            f"{clusters} clusters for {fleet.clients} clients: every cluster needs at least one client; "
            f"set schedule.workloads to between 1 and {fleet.clients}"
        )
    start_s = time.perf_counter()
    if rule is None and config.rule == "label_aware":
        return _searched(label_aware(config, fleet, clusters), config, fleet, start_s)
    generator = stream(seed, Purpose.CLUSTERING, redraw)
    built_in = None if rule else _RULES.get(config.rule)
    chosen = rule or built_in or _named(config.rule)
    told = _told(chosen, config.speeds, clusters)
    if built_in:
        assignment = built_in(fleet, clusters, generator, **told)
    else:
        assignment = _own_rule(chosen, fleet, clusters, generator, told)
    report = None
    if fleet.histograms is not None:
        reached = objective(fleet, assignment, clusters, config.speeds)
        report = ObjectiveReport(reached, reached, seconds=time.perf_counter() - start_s)
    return Clustering(assignment, clusters, report)


def random(fleet: Fleet, clusters: int, generator: np.random.Generator) -> IntArray:
    """Permute the clients and deal them round-robin: cluster cardinalities differ by at most one."""
    assignment = np.empty(fleet.clients, dtype=np.int64)
    assignment[generator.permutation(fleet.clients)] = np.arange(fleet.clients) % clusters
    return assignment


def size_balanced(
    fleet: Fleet, clusters: int, _: np.random.Generator | None = None, speeds: Speeds | None = None
) -> IntArray:
    """Largest client first, each into the cluster that would be done soonest with it, of those that have room.

    Room is for a share of the clients in proportion to the slot's speed, rounded up: ceil(K / N) where all are equal.
    Ties go to the lowest index, of clients and of clusters; nothing is drawn.
    """
    return largest_first(fleet.counts, clusters, speeds)


def label_aware(config: ClusteringConfig, fleet: Fleet, clusters: int) -> Search:
    """From a balanced start, apply the best single move until none lowers J; then, with `swaps`, exchange pairs too.

    The end is a true local optimum: no single move lowers J by more than 1e-12, and with `swaps` no exchange of two
    clients between clusters does, unless `moves_max` ended the search. A move may not empty a cluster; unlike in size
    balancing, cardinality has no maximum, since the balance term alone keeps schedules even.

    `start = "size_balanced"` without swaps is the paper's rule. With swaps the search never ends above that rule: where
    the paper's rule does better, the search goes on from there; and a small fleet is searched from every start.
    `measure` and `composition_weight` change what is minimised, and then these promises hold for that; the J reported
    is always the paper's.
    """
    if fleet.histograms is None:
        raise ConfigError(
            "clustering.rule = 'label_aware' needs every client's class histogram, and the fleet has only counts; "
            "add the class counts, or use clustering.rule = 'size_balanced'"
        )
    swaps = config.swaps and fleet.clients <= SWAP_CLIENTS_MAX
    found = _search(config, fleet, clusters, config.start).descend(swaps)
    if config.swaps and fleet.clients <= SMALL_CLIENTS_MAX:
        others = [_search(config, fleet, clusters, start).descend(swaps) for start in _STARTS if start != config.start]
        return min(found, *others, key=lambda search: search.cost)
    if config.swaps and config.start != "size_balanced":
        paper = _search(config, fleet, clusters, "size_balanced").descend(swaps=False)
        if paper.cost < found.cost:
            return paper.descend(swaps)
    return found


def objective(fleet: Fleet, assignment: IntArray, clusters: int, speeds: Speeds | None = None) -> Objective:
    """J = sum_n |w_n - target_n| / |D| + sum_n (w_n / |D|) JSD(p_n, p), in nats; needs histograms.

    Targets are in proportion to the slots' speeds. Where these are equal, all are the mean, as in the paper.
    """
    assert fleet.histograms is not None
    held = fleet.histograms[:, fleet.histograms.sum(axis=0) > 0]
    h = np.zeros((clusters, held.shape[1]))
    np.add.at(h, assignment, held)
    samples = h.sum()
    targets = target_samples(samples, relative(speeds, clusters))
    balance = np.abs(h.sum(axis=1) - targets).sum() / samples
    composition = weighted_divergence(h, h.sum(axis=0) / samples).sum() / samples
    return Objective(float(balance), max(float(composition), 0.0))


def discloses(rule: str) -> str:
    """What a rule must be told about each client's data."""
    return _DISCLOSES.get(rule, "whatever the fleet holds: a rule of your own sees all of it")


def takes_speeds(rule: ClusteringConfig | Rule) -> bool:
    """Whether a rule can see to it that slow slots get less."""
    if isinstance(rule, ClusteringConfig):
        if rule.rule == "label_aware":
            return True
        rule = _RULES.get(rule.rule) or _named(rule.rule)
    try:
        return "speeds" in inspect.signature(rule).parameters
    except (TypeError, ValueError):  # some callables have none that Python knows of
        return False


_RULES: dict[str, Rule] = {"random": random, "size_balanced": size_balanced}
_STARTS: dict[str, Callable[[Fleet, int, Speeds | None], IntArray]] = {
    "size_balanced": lambda fleet, clusters, speeds: size_balanced(fleet, clusters, speeds=speeds),
    "greedy": greedy,
    "round_robin": round_robin,
}
_DISCLOSES = {
    "random": "nothing",
    "size_balanced": "one sample count per client",
    "label_aware": "a sample count and a class histogram per client",
}


def _search(config: ClusteringConfig, fleet: Fleet, clusters: int, start: str) -> Search:
    assert fleet.histograms is not None
    distance = config.measure == "distance"
    assignment = _STARTS[start](fleet, clusters, config.speeds)
    weight, changes_max = config.composition_weight, config.moves_max
    return Search(fleet.histograms, clusters, assignment, weight, distance, changes_max, config.speeds)


def _searched(search: Search, config: ClusteringConfig, fleet: Fleet, start_s: float) -> Clustering:
    report = ObjectiveReport(
        before=objective(fleet, search.start, search.clusters, config.speeds),
        after=objective(fleet, search.assignment, search.clusters, config.speeds),
        moves=search.moves,
        swaps=search.swaps,
        evaluations=search.evaluations,
        optimum_of=search.optimum_of,
        seconds=time.perf_counter() - start_s,
    )
    return Clustering(search.assignment, search.clusters, report)


def _named(rule: str) -> Rule:
    if ":" not in rule:
        raise ConfigError(
            f"unknown clustering.rule '{rule}': {nearest(rule, _DISCLOSES)} (your own: package.module:function)"
        )
    return resolve(rule, "clustering.rule")


def _told(rule: Rule, speeds: Speeds | None, clusters: int) -> dict[str, FloatArray]:
    """What a rule is told of speeds that are given."""
    if speeds is None:
        return {}
    if not takes_speeds(rule):
        raise ConfigError(
            f"the clustering rule '{_name(rule)}' would ignore clustering.speeds: it has no parameter named speeds; "
            "remove that setting, or use 'size_balanced' or 'label_aware'"
        )
    return {"speeds": relative(speeds, clusters)}


def _name(rule: Rule) -> str:
    return getattr(rule, "__name__", type(rule).__name__)


def _own_rule(
    rule: Rule, fleet: Fleet, clusters: int, generator: np.random.Generator, told: dict[str, FloatArray]
) -> IntArray:
    """What a rule of the user's own answers; it may take other arguments, fail, or answer wrongly."""
    name = _name(rule)
    try:
        proposed = np.asarray(rule(fleet, clusters, generator, **told))
    except GcpslError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the clustering rule '{name}' failed: {type(error).__name__}: {error}; "
            f"it is called as rule(fleet, clusters, generator{', speeds=...' if told else ''}) and must return each "
            "client's cluster"
        ) from error
    return _checked(proposed, fleet, clusters, name)


def _checked(assignment: NDArray[Any], fleet: Fleet, clusters: int, name: str) -> IntArray:
    """The answer as an assignment that leaves no cluster empty."""
    wanted = (
        f"the clustering rule '{name}' must return one cluster, 0 to {clusters - 1}, "
        f"for each of {fleet.clients} clients"
    )
    if assignment.shape != (fleet.clients,):
        raise ConfigError(f"{wanted}; it returned an array of shape {assignment.shape}")
    if assignment.dtype.kind not in "iu":
        raise ConfigError(f"{wanted}, as integers; it returned {assignment.dtype}")
    if assignment.min() < 0 or assignment.max() >= clusters:
        raise ConfigError(f"{wanted}; it returned clusters {assignment.min()} to {assignment.max()}")
    empty = np.flatnonzero(np.bincount(assignment, minlength=clusters) == 0)
    if empty.size:
        raise ConfigError(f"{wanted}, and leave none empty; cluster {empty[0]} got no client")
    return assignment.astype(np.int64)
