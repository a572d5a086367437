"""Answers without training: what each clustering rule and N makes of a fleet, in closed form.

Reads counts, histograms and segment sizes. Covers workloads that draw from their own clusters and, as N = 1,
GPSL over all clients; not `draw = 'all'`, nor redrawn assignments. Knows no accuracy and no seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gcpsl.clustering import Objective, Rule, cluster, discloses, objective, takes_speeds
from gcpsl.config import ClusteringConfig, Config, OptimizerConfig
from gcpsl.errors import ConfigError
from gcpsl.fleet import Fleet, IntArray
from gcpsl.metrics import (
    Payload,
    PayloadSizes,
    SlotTimes,
    epoch_payload,
    expected_deviation,
    expected_participation,
    fusions_per_epoch,
    slot_times,
)
from gcpsl.metrics.payload import FLOAT_BYTES
from gcpsl.planner_advice import Recommendation, recommend
from gcpsl.planner_csv import fleet_from_csv
from gcpsl.speeds import fastest

if TYPE_CHECKING:
    from gcpsl.models import SegmentSizes

__all__ = ["Plan", "Row", "fleet_from_csv", "memory_slot_bytes", "plan", "plan_config"]

Slots = tuple[float, ...]

WORKLOADS = (2, 4, 8, 16)
RULES = ("random", "size_balanced", "label_aware")
SINGLE = "one workload"


UNPLANNED_NOTE = (
    "This plans fixed clusters that draw their own batches; schedule.draw = 'all' and "
    "schedule.assignment = 'redrawn' differ from it."
)
SAMPLER_NOTE = "Whatever the rule, the GPSL sampler itself needs every client's sample count."


@dataclass(frozen=True)
class Row:
    """One rule at one N. Participation and deviation are exact means over the sampler's draws."""

    rule: str
    workloads: int
    clients_min: int
    clients_max: int
    samples_min: int
    samples_max: int
    rounds: tuple[int, ...]
    objective: Objective | None
    """J and its parts; None where histograms are unknown, as are all that is None here."""
    participation_ran: float
    """Over the cluster-rounds that run."""
    participation_system: float
    """Over K times the longest cluster's rounds: a client that waits at the barrier takes no part."""
    participation_bound: float
    """min(1, N*B/K)."""
    speedup: float
    """Of rounds; or of time, where the slots have speeds. So is efficiency."""
    efficiency: float
    deviation: float | None
    payload: Payload | None
    """Bytes per epoch, fusions included."""
    memory_slot_bytes: int | None
    discloses: str
    """What the assignment asks of every client, once and before training."""
    times: SlotTimes | None = None
    """The epoch on the N fastest of the slots whose speeds are given; None where none are."""
    times_ignoring: SlotTimes | None = None
    """The same, had the rule known nothing of speeds."""

    @property
    def rounds_max(self) -> int:
        return max(self.rounds)

    @property
    def epoch_time(self) -> float:
        """In rounds of the fastest slot."""
        return self.times.epoch_time if self.times else self.rounds_max


@dataclass(frozen=True)
class Plan:
    """What was asked, a row per answer (the first is one workload over all clients), and the advice."""

    clients: int
    samples: int
    classes: int | None
    batch_size: int
    rows: tuple[Row, ...]
    recommendation: Recommendation
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Question:
    """What every row shares."""

    fleet: Fleet
    batch_size: int
    synchronise: str | int
    sizes: SegmentSizes | None
    optimizer: OptimizerConfig
    speeds: Slots | None
    seed: int


def plan(
    fleet: Fleet,
    *,
    workloads: Sequence[int] = WORKLOADS,
    batch_size: int,
    rules: Sequence[ClusteringConfig | Rule | str] = RULES,
    sizes: SegmentSizes | None = None,
    synchronise: str | int = "epoch",
    optimizer: OptimizerConfig | None = None,
    speeds: Sequence[float] | None = None,
    seed: int = 0,
) -> Plan:
    """The rows of every rule at every N, with N = 1 always first, and a recommendation.

    A rule that needs histograms is skipped with a note where the fleet has none. Without `sizes` there are no
    payloads and no memory. With `speeds`, one per slot, N workloads are planned for the N fastest slots.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size = {batch_size}: a batch needs at least 1 sample")
    slots = _as_slots(speeds)
    asked = _asked(workloads, fleet.clients, slots)
    usable, notes = _usable([_as_config(rule, slots) for rule in rules], fleet)
    question = _Question(fleet, batch_size, synchronise, sizes, optimizer or OptimizerConfig(), slots, seed)
    everyone = np.zeros(fleet.clients, dtype=np.int64)
    rows = [_row(question, SINGLE, discloses("random"), everyone, slots and fastest(slots, 1), everyone)]
    for n in asked:
        rows += [_rule_row(question, rule, n) for rule in usable]
    advice = recommend(rows, fleet.clients, batch_size)
    return Plan(
        clients=fleet.clients,
        samples=fleet.samples,
        classes=None if fleet.histograms is None else fleet.histograms.shape[1],
        batch_size=batch_size,
        rows=tuple(rows),
        recommendation=advice,
        notes=(SAMPLER_NOTE, *notes, *_on_slots(question, usable), *_larger_batch(question, advice.workloads)),
    )


def plan_config(
    config: Config,
    fleet: Fleet,
    sizes: SegmentSizes | None = None,
    *,
    workloads: Sequence[int] | None = None,
    rules: Sequence[ClusteringConfig | Rule | str] | None = None,
) -> Plan:
    """The plan of a run's settings: its own N among the usual ones, its own rule among the built-in ones."""
    if workloads is None:
        slots = len(config.clustering.speeds or ()) or fleet.clients
        workloads = [n for n in sorted({*WORKLOADS, config.schedule.workloads}) if n <= min(slots, fleet.clients)]
    if rules is None:
        own = config.clustering
        rules = [own if rule == own.rule else rule for rule in RULES]
        rules += [] if own.rule in RULES else [own]
    answer = plan(
        fleet,
        workloads=workloads,
        batch_size=config.schedule.batch_size,
        rules=rules,
        sizes=sizes,
        synchronise=config.schedule.synchronise,
        optimizer=config.optimizer,
        speeds=config.clustering.speeds,
        seed=config.seed,
    )
    if config.schedule.draw == "all" or config.schedule.assignment == "redrawn":
        return replace(answer, notes=(*answer.notes, UNPLANNED_NOTE))
    return answer


def memory_slot_bytes(sizes: SegmentSizes, batch_size: int, optimizer: OptimizerConfig) -> int:
    """What one slot's tensors take in training, one client segment standing for its cluster's clients.

    Parameters, gradients and optimizer state of both segments, what autograd keeps of a batch, and the
    normalisation state; not the allocator's slack, the framework's own memory or the data.
    """
    moments = {"adamw": 2, "sgd": int(optimizer.momentum > 0)}[optimizer.kind]
    parameters = sizes.client_parameters + sizes.server_parameters
    kept = batch_size * sizes.saved_bytes_per_sample
    return (2 + moments) * FLOAT_BYTES * parameters + kept + sizes.norm_state_bytes


def _rule_row(question: _Question, rule: ClusteringConfig | Rule, workloads: int) -> Row:
    slots = fastest(question.speeds, workloads) if question.speeds else None
    ignoring = assignment = _assignment(question, rule, workloads, None)
    if slots and takes_speeds(rule):
        assignment = _assignment(question, rule, workloads, slots)
    return _row(question, rule_label(rule), _disclosed(rule), assignment, slots, ignoring)


def _assignment(question: _Question, rule: ClusteringConfig | Rule, clusters: int, slots: Slots | None) -> IntArray:
    config, own = (rule, None) if isinstance(rule, ClusteringConfig) else (ClusteringConfig(), rule)
    told = config.model_copy(update={"speeds": slots})
    return cluster(told, question.fleet, clusters, question.seed, rule=own).assignment


def _disclosed(rule: ClusteringConfig | Rule) -> str:
    return discloses(rule.rule if isinstance(rule, ClusteringConfig) else rule_label(rule))


def rule_label(rule: ClusteringConfig | Rule) -> str:
    """The rule's name, with the settings that differ from the defaults."""
    if not isinstance(rule, ClusteringConfig):
        return getattr(rule, "__name__", type(rule).__name__)
    changed = {
        name: value
        for name, value in rule.model_dump().items()
        if name != "rule" and value != ClusteringConfig.model_fields[name].default
    }
    if not changed:
        return rule.rule
    return f"{rule.rule}({', '.join(f'{name}={value}' for name, value in changed.items())})"


def _asked(workloads: Sequence[int], clients: int, slots: Slots | None) -> list[int]:
    """The Ns above 1, each once, in order."""
    wrong = [n for n in workloads if not 1 <= n <= clients]
    if wrong:
        raise ConfigError(f"workloads = {wrong[0]}: N goes from 1 to the fleet's number of clients, {clients:,}")
    if slots and max(workloads, default=1) > len(slots):
        raise ConfigError(
            f"workloads = {max(workloads)}, but clustering.speeds knows {len(slots)} slots; ask for at most as many, "
            "or give more speeds, and schedule.workloads with them"
        )
    return sorted({n for n in workloads if n > 1})


def _as_slots(speeds: Sequence[float] | None) -> Slots | None:
    if speeds is None:
        return None
    if not speeds or not all(0 < speed < math.inf for speed in speeds):
        raise ConfigError(f"speeds = {list(speeds)}: give a positive number for each slot")
    return tuple(speeds)


def _as_config(rule: ClusteringConfig | Rule | str, slots: Slots | None) -> ClusteringConfig | Rule:
    """The rule without speeds, which differ from one N to another."""
    if isinstance(rule, str):
        return ClusteringConfig(rule=rule)
    if not isinstance(rule, ClusteringConfig) or rule.speeds is None:
        return rule
    if rule.speeds != slots:
        raise ConfigError(
            f"the rule '{rule.rule}' comes with speeds = {list(rule.speeds)}, which are not the plan's; set "
            "clustering.speeds for all rules instead"
        )
    return rule.model_copy(update={"speeds": None})


def _on_slots(question: _Question, rules: Sequence[ClusteringConfig | Rule]) -> list[str]:
    if question.speeds is None:
        return []
    shown = ", ".join(f"{speed:g}" for speed in question.speeds)
    notes = [
        f"Slots of speeds {shown}: N workloads take the N fastest. Times are in rounds of the fastest; speed-up and "
        "efficiency are of time, participation is of rounds."
    ]
    blind = [rule_label(rule) for rule in rules if not takes_speeds(rule)]
    return notes + [f"{name} takes no speeds; to train with it, remove clustering.speeds." for name in blind]


def _usable(rules: Sequence[ClusteringConfig | Rule], fleet: Fleet) -> tuple[list[ClusteringConfig | Rule], list[str]]:
    """The rules that this fleet's metadata allow, and a note on those it does not."""
    if fleet.histograms is not None:
        return list(rules), []
    blind = [rule for rule in rules if not isinstance(rule, ClusteringConfig) or rule.rule != "label_aware"]
    if len(blind) == len(rules):
        return blind, []
    if not blind:
        raise ConfigError("rule 'label_aware' needs class histograms, and only counts are known; add 'size_balanced'")
    return blind, ["label_aware is left out: it needs class histograms, and only counts are known."]


def _larger_batch(question: _Question, workloads: int) -> list[str]:
    """The simpler alternative, which the paper finds better where memory and optimisation allow it."""
    if workloads == 1:
        return []
    batch = workloads * question.batch_size
    memory = ""
    if question.sizes is not None:
        slot_bytes = memory_slot_bytes(question.sizes, batch, question.optimizer)
        memory = f" ({slot_bytes / 2**20:,.0f} MiB)"
    return [
        f"One workload with batches of {batch:,} has the bound of N = {workloads:,}, and is simpler where it fits "
        f"one slot{memory} and trains well."
    ]


def _row(
    question: _Question, rule: str, disclosed: str, assignment: IntArray, slots: Slots | None, ignoring: IntArray
) -> Row:
    """What comes of an assignment; and of one `ignoring` speeds, where the slots have some."""
    fleet, sizes = question.fleet, question.sizes
    expected = expected_participation(fleet.counts, assignment, question.batch_size)
    n = expected.schedule.workloads
    samples = np.bincount(assignment, weights=fleet.counts).astype(np.int64)
    times = _times(question, assignment, slots) if slots else None
    histograms = _by_cluster(fleet.histograms, assignment, n)
    payload = memory = None
    if sizes is not None:
        fusions = fusions_per_epoch(question.synchronise, expected.schedule.rounds_max)
        payload = epoch_payload(PayloadSizes.of(sizes), fleet.samples, expected, workloads=n, fusions=fusions)
        memory = memory_slot_bytes(sizes, question.batch_size, question.optimizer)
    return Row(
        rule=rule,
        workloads=n,
        clients_min=min(expected.cluster_clients),
        clients_max=max(expected.cluster_clients),
        samples_min=int(samples.min()),
        samples_max=int(samples.max()),
        rounds=expected.schedule.rounds,
        objective=None if histograms is None else objective(fleet, assignment, n, slots),
        participation_ran=expected.direct_ran,
        participation_system=expected.direct_system,
        participation_bound=expected.bounds.participation,
        speedup=times.speedup if times else expected.schedule.speedup,
        efficiency=times.efficiency if times else expected.schedule.efficiency,
        deviation=None if histograms is None else expected_deviation(histograms, question.batch_size),
        payload=payload,
        memory_slot_bytes=memory,
        discloses=disclosed,
        times=times,
        times_ignoring=_times(question, ignoring, slots) if slots else None,
    )


def _times(question: _Question, assignment: IntArray, slots: Slots) -> SlotTimes:
    samples = np.bincount(assignment, weights=question.fleet.counts).astype(np.int64)
    return slot_times((-(-samples // question.batch_size)).tolist(), slots, question.synchronise)


def _by_cluster(histograms: IntArray | None, assignment: IntArray, clusters: int) -> IntArray | None:
    """The class counts of each cluster, [N, classes]."""
    if histograms is None:
        return None
    columns = [np.bincount(assignment, weights=column, minlength=clusters) for column in histograms.T]
    return np.stack(columns, axis=1).astype(np.int64)
