"""Slots of different speeds: slow ones get less, equal ones change nothing, and a rule that can't tell is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gcpsl.clustering import cluster, objective, random, size_balanced, takes_speeds
from gcpsl.config import ClusteringConfig
from gcpsl.data import extended_dirichlet
from gcpsl.errors import ConfigError
from gcpsl.fleet import Fleet, IntArray
from gcpsl.label_search import Search
from gcpsl.speeds import FloatArray, fastest, relative

VARIANTS: dict[str, dict[str, object]] = {
    "size-balanced": {"rule": "size_balanced"},
    "label-aware": {},
    "literal": {"start": "size_balanced", "swaps": False},
    "moves from greedy": {"swaps": False},
    "distance": {"start": "round_robin", "swaps": False, "measure": "distance", "composition_weight": 10},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)
some_speed = st.one_of(st.sampled_from([0.1, 0.5, 1.0, 1.0, 2.0]), st.floats(0.05, 5))


def config_of(variant: str, speeds: Sequence[float] | None) -> ClusteringConfig:
    return ClusteringConfig.model_validate({**VARIANTS[variant], "speeds": speeds})


def fleet_of(histograms: IntArray) -> Fleet:
    return Fleet(tuple(f"c{k}" for k in range(len(histograms))), histograms.sum(axis=1), histograms)


def counts_only(counts: Sequence[int]) -> Fleet:
    return Fleet(tuple(f"c{k}" for k in range(len(counts))), np.array(counts, dtype=np.int64))


def paper_fleet(clients: int = 256) -> Fleet:
    labels = np.arange(50_000) % 10
    owners = extended_dirichlet.gpsl(clients, 2, 3.0, labels, 10, np.random.default_rng(0))
    return Fleet.from_owners(owners, labels, 10)


@st.composite
def cases(draw: st.DrawFn, clients_max: int = 12) -> tuple[Fleet, list[float]]:
    """A fleet, and the speeds of as many slots as it can fill."""
    shape = (draw(st.integers(1, clients_max)), draw(st.integers(1, 4)))
    entries = st.one_of(st.sampled_from([0, 0, 7]), st.integers(0, 60))
    histograms = draw(hnp.arrays(np.int64, shape, elements=entries))
    histograms[histograms.sum(axis=1) == 0, 0] = 1
    return fleet_of(histograms), draw(st.lists(some_speed, min_size=1, max_size=shape[0]))


def longest_time(fleet: Fleet, assignment: IntArray, speeds: Sequence[float]) -> float:
    """Until the last slot is done."""
    samples = np.bincount(assignment, weights=fleet.counts, minlength=len(speeds))
    return float((samples / np.array(speeds)).max())


@given(st.integers(1, 9), st.floats(1e-3, 1e3))
def test_equal_speeds_are_as_none_to_the_last_bit(slots: int, speed: float) -> None:
    assert relative([speed] * slots, slots).tolist() == relative(None, slots).tolist() == [1.0] * slots


def test_only_the_ratios_of_speeds_count() -> None:
    assert relative([3, 6, 1.5], 3).tolist() == relative([1, 2, 0.5], 3).tolist() == [0.5, 1.0, 0.25]
    assert fastest([0.5, 2, 1, 2], 2) == (2, 2)
    assert fastest([0.5, 2, 1, 2], 3) == (2, 1, 2)


@settings(deadline=None, max_examples=40)
@given(cases(), st.sampled_from([0.1, 1.0, 2.0, 7.3]), st.sampled_from(list(VARIANTS)))
def test_equal_speeds_change_nothing(case: tuple[Fleet, list[float]], speed: float, variant: str) -> None:
    fleet, clusters = case[0], len(case[1])
    plain = cluster(config_of(variant, None), fleet, clusters, seed=0)
    equal = cluster(config_of(variant, [speed] * clusters), fleet, clusters, seed=0)
    assert equal.assignment.tolist() == plain.assignment.tolist()
    assert equal.report == plain.report


@each_variant
def test_equal_speeds_change_nothing_in_the_papers_fleet(variant: str) -> None:
    fleet = paper_fleet()
    plain, equal = (cluster(config_of(variant, speeds), fleet, 4, seed=0) for speeds in (None, [2, 2, 2, 2]))
    assert equal.assignment.tolist() == plain.assignment.tolist()
    assert equal.report == plain.report


def slow_size_balanced(counts: list[int], speeds: list[float]) -> list[int]:
    """Client by client, looking at every cluster."""
    clients, clusters = len(counts), len(speeds)
    speed = [s / max(speeds) for s in speeds]
    samples, members, assignment = [0] * clusters, [0] * clusters, [0] * clients
    order = sorted(range(clients), key=lambda k: (-counts[k], k))
    for placed, k in enumerate(order):
        open_ = [n for n in range(clusters) if members[n] < np.ceil(clients * speed[n] / np.sum(speed))]
        empty = [n for n in range(clusters) if not members[n]]
        allowed = empty if clients - placed == len(empty) else open_
        n = min(allowed, key=lambda n: ((samples[n] + counts[k]) / speed[n], n))
        assignment[k], samples[n], members[n] = n, samples[n] + counts[k], members[n] + 1
    return assignment


@settings(max_examples=300)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.data())
def test_size_balanced_places_the_largest_first_where_it_is_done_soonest(
    counts: list[int], data: st.DataObject
) -> None:
    speeds = data.draw(st.lists(some_speed, min_size=1, max_size=min(8, len(counts))))
    found = size_balanced(counts_only(counts), len(speeds), speeds=speeds)
    assert found.tolist() == slow_size_balanced(counts, speeds)


@settings(max_examples=300)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.data())
def test_heeding_speeds_at_worst_takes_twice_as_long_as_ignoring_them(counts: list[int], data: st.DataObject) -> None:
    """Largest first is a heuristic; on usual fleets it is within a hundredth of the best, as shown below."""
    speeds = data.draw(st.lists(some_speed, min_size=1, max_size=min(6, len(counts))))
    fleet = counts_only(counts)
    heeding, ignoring = (size_balanced(fleet, len(speeds), speeds=given) for given in (speeds, None))
    assert longest_time(fleet, heeding, speeds) <= 2 * longest_time(fleet, ignoring, speeds)


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from(list(VARIANTS)))
def test_no_slot_is_so_slow_that_it_gets_nobody(case: tuple[Fleet, list[float]], variant: str) -> None:
    fleet, speeds = case
    found = cluster(config_of(variant, speeds), fleet, len(speeds), seed=0)
    assert np.bincount(found.assignment, minlength=len(speeds)).min() >= 1


@each_variant
@pytest.mark.parametrize("speeds", [(2, 1, 1, 1), (1, 0.5, 1, 1), (1, 0.7, 0.5, 0.3), (0.25, 1, 0.25, 1)])
def test_every_rule_gives_a_slot_samples_in_proportion_to_its_speed(variant: str, speeds: tuple[float, ...]) -> None:
    fleet = paper_fleet(1000)
    found = cluster(config_of(variant, speeds), fleet, 4, seed=0)
    samples = np.bincount(found.assignment, weights=fleet.counts)
    tolerance = 0.05 if variant == "distance" else 0.01  # that one weighs balance at a tenth
    assert samples / fleet.samples == pytest.approx(np.array(speeds) / sum(speeds), rel=tolerance)
    fair = fleet.samples / sum(speeds)
    assert longest_time(fleet, found.assignment, speeds) < (1 + tolerance) * fair
    ignoring = cluster(config_of(variant, None), fleet, 4, seed=0)
    assert longest_time(fleet, ignoring.assignment, speeds) > 1.2 * fair


def direct_cost(config: ClusteringConfig, fleet: Fleet, assignment: IntArray) -> float:
    """What is minimised, cluster by cluster and class by class, in units of J."""
    assert fleet.histograms is not None
    assert config.speeds is not None
    shares = fleet.histograms.sum(axis=0) / fleet.samples
    cost = 0.0
    for n, speed in enumerate(config.speeds):
        h = fleet.histograms[assignment == n].sum(axis=0)
        divergence = 0.0
        for q, p in zip(h / h.sum(), shares, strict=True):
            divergence += sum(share * np.log(2 * share / (q + p)) / 2 for share in (q, p) if share > 0)
        measured = np.sqrt(max(divergence, 0)) if config.measure == "distance" else divergence
        cost += abs(h.sum() - fleet.samples * speed / sum(config.speeds))
        cost += config.composition_weight * h.sum() * measured
    return cost / fleet.samples


@settings(deadline=None, max_examples=60)
@given(cases(clients_max=10), st.sampled_from([name for name in VARIANTS if name != "size-balanced"]))
def test_the_search_ends_where_no_neighbour_is_better_at_these_speeds(
    case: tuple[Fleet, list[float]], variant: str
) -> None:
    fleet, speeds = case
    config = config_of(variant, speeds)
    found = cluster(config, fleet, len(speeds), seed=0).assignment
    reached = direct_cost(config, fleet, found)
    for k in range(fleet.clients):
        for n in range(len(speeds)):
            moved = found.copy()
            moved[k] = n
            if len(set(moved.tolist())) == len(speeds):
                assert direct_cost(config, fleet, moved) > reached - 2e-12
        for other in range(k) if config.swaps else ():
            swapped = found.copy()
            swapped[[k, other]] = swapped[[other, k]]
            assert direct_cost(config, fleet, swapped) > reached - 2e-12


@settings(deadline=None, max_examples=60)
@given(cases(), st.booleans(), st.integers(0, 99))
def test_the_cost_kept_up_to_date_is_that_of_the_formula(
    case: tuple[Fleet, list[float]], distance: bool, seed: int
) -> None:
    fleet, speeds = case
    config = ClusteringConfig(speeds=tuple(speeds), measure="distance" if distance else "divergence")
    start = random(fleet, len(speeds), np.random.default_rng(seed))
    assert fleet.histograms is not None
    search = Search(fleet.histograms, len(speeds), start, distance=distance, speeds=speeds).descend(swaps=True)
    # a root turns rounding of 1e-16 near zero divergence into 1e-8
    tolerance = 1e-6 if distance else 1e-12
    assert search.cost / fleet.samples == pytest.approx(direct_cost(config, fleet, search.assignment), abs=tolerance)


@given(cases(), st.integers(0, 99))
def test_the_objective_compares_samples_with_what_the_speeds_ask_for(
    case: tuple[Fleet, list[float]], seed: int
) -> None:
    fleet, speeds = case
    assignment = random(fleet, len(speeds), np.random.default_rng(seed))
    config = ClusteringConfig(speeds=tuple(speeds))
    found = objective(fleet, assignment, len(speeds), speeds)
    assert found.total == pytest.approx(direct_cost(config, fleet, assignment), abs=1e-12)


def test_clusters_in_proportion_to_their_speeds_are_in_perfect_balance() -> None:
    fleet = fleet_of(np.array([[4, 4], [1, 1], [3, 3]]))
    assert objective(fleet, np.array([0, 1, 1]), 2, [1, 1]).total == 0
    assert objective(fleet, np.array([0, 1, 0]), 2, [7, 1]).total == 0
    assert objective(fleet, np.array([0, 1, 0]), 2).balance == pytest.approx(0.75)


def test_reports_are_of_the_balance_that_speeds_ask_for() -> None:
    report = cluster(config_of("label-aware", [3, 1]), paper_fleet(), 2, seed=0).report
    assert report is not None
    assert report.after.total < report.before.total < 0.01


def test_the_default_is_never_above_the_papers_rule_at_these_speeds() -> None:
    fleet = paper_fleet()
    for speeds in ((1, 1, 1, 0.2), (4, 2, 1, 1)):
        default, literal = (
            objective(fleet, cluster(config_of(name, speeds), fleet, 4, 0).assignment, 4, speeds).total
            for name in ("label-aware", "literal")
        )
        assert default < literal / 10


def test_rules_that_can_not_heed_speeds_say_so() -> None:
    assert takes_speeds(ClusteringConfig())
    assert takes_speeds(ClusteringConfig(rule="size_balanced"))
    assert not takes_speeds(ClusteringConfig(rule="random"))
    assert not takes_speeds(max)  # type: ignore[arg-type]


def by_speed(fleet: Fleet, clusters: int, _: np.random.Generator, speeds: FloatArray | None = None) -> IntArray:
    assert speeds is None or speeds.max() == 1
    return np.arange(fleet.clients) % clusters if speeds is None else np.repeat([0, 1], [3, 1])


def test_a_rule_of_ones_own_is_given_speeds_where_there_are_any() -> None:
    fleet = counts_only([1, 1, 1, 1])
    config = ClusteringConfig(rule="size_balanced")
    told = config.model_copy(update={"speeds": (6.0, 2.0)})
    assert cluster(config, fleet, 2, 0, rule=by_speed).assignment.tolist() == [0, 1, 0, 1]
    assert cluster(told, fleet, 2, 0, rule=by_speed).assignment.tolist() == [0, 0, 0, 1]


def test_a_rule_of_ones_own_that_knows_no_speeds_is_refused_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blind_rules.py").write_text("def halves(fleet, n, generator):\n    return [0, 0, 1, 1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = ClusteringConfig(rule="blind_rules:halves", speeds=(1, 2))
    with pytest.raises(ConfigError, match=r"'halves' would ignore clustering\.speeds: it has no parameter named"):
        cluster(config, counts_only([1, 2, 3, 4]), 2, seed=0)


def test_a_rule_of_ones_own_that_fails_with_speeds_is_shown_how_it_is_called() -> None:
    def forgetful(fleet: Fleet, clusters: int, _: np.random.Generator, speeds: FloatArray | None = None) -> IntArray:
        raise KeyError("slots")

    with pytest.raises(ConfigError, match=r"rule\(fleet, clusters, generator, speeds=\.\.\.\) and must return"):
        cluster(ClusteringConfig(speeds=(1, 2)), counts_only([1, 1, 1]), 2, seed=0, rule=forgetful)


@pytest.mark.parametrize("rule", ["size_balanced", "label_aware"])
def test_every_cluster_needs_a_speed(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"clustering\.speeds has 2 speeds for 3 clusters; give one for each"):
        cluster(ClusteringConfig(rule=rule, speeds=(1, 2)), paper_fleet(), 3, seed=0)
