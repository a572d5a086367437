"""The three clustering rules, a researcher's own, and the objective they are judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gcpsl.clustering import cluster, discloses, objective, random, size_balanced
from gcpsl.config import ClusteringConfig
from gcpsl.errors import ConfigError
from gcpsl.fleet import Fleet, IntArray

SIZE_BALANCED = ClusteringConfig(rule="size_balanced")
RANDOM = ClusteringConfig(rule="random")


def fleet_of(histograms: IntArray) -> Fleet:
    return Fleet(tuple(f"c{k}" for k in range(len(histograms))), histograms.sum(axis=1), histograms)


def counts_only(counts: list[int]) -> Fleet:
    return Fleet(tuple(f"c{k}" for k in range(len(counts))), np.array(counts, dtype=np.int64))


@st.composite
def fleets(draw: st.DrawFn, clients_max: int = 12, classes_max: int = 5) -> tuple[Fleet, int]:
    """A fleet and a number of clusters that it can fill; some classes may be nobody's."""
    shape = (draw(st.integers(1, clients_max)), draw(st.integers(1, classes_max)))
    histograms = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 40)))
    histograms[histograms.sum(axis=1) == 0, 0] = 1
    return fleet_of(histograms), draw(st.integers(1, shape[0]))


def slow_objective(fleet: Fleet, assignment: IntArray, clusters: int) -> tuple[float, float]:
    """J as the paper prints it, one class at a time."""
    assert fleet.histograms is not None
    total = fleet.samples
    p = fleet.histograms.sum(axis=0) / total
    balance = composition = 0.0
    for n in range(clusters):
        members = fleet.histograms[assignment == n].sum(axis=0)
        w = members.sum()
        balance += abs(w - total / clusters) / total
        for q_c, p_c in zip(members / w, p, strict=True):
            for share in (q_c, p_c):
                if share > 0:
                    composition += w / total * share * np.log(2 * share / (q_c + p_c)) / 2
    return balance, composition


@given(fleets(), st.integers(0, 99))
def test_the_objective_is_the_papers(case: tuple[Fleet, int], seed: int) -> None:
    fleet, clusters = case
    assignment = random(fleet, clusters, np.random.default_rng(seed))
    found = objective(fleet, assignment, clusters)
    assert (found.balance, found.composition) == pytest.approx(slow_objective(fleet, assignment, clusters), abs=1e-12)
    assert found.total == found.balance + found.composition


def test_the_objective_of_clusters_with_disjoint_classes_is_known() -> None:
    fleet = fleet_of(np.array([[5, 0], [0, 5]]))
    # JSD between (1, 0) and (1/2, 1/2) in nats
    divergence = (np.log(4 / 3) + np.log(2 / 3) / 2 + np.log(2) / 2) / 2
    found = objective(fleet, np.array([0, 1]), 2)
    assert found.balance == 0
    assert found.composition == pytest.approx(divergence)


@given(fleets(), st.sampled_from(["random", "size_balanced", "label_aware"]))
def test_every_rule_gives_each_client_one_cluster_and_leaves_none_empty(case: tuple[Fleet, int], rule: str) -> None:
    fleet, clusters = case
    found = cluster(ClusteringConfig(rule=rule), fleet, clusters, seed=3)
    assert found.assignment.dtype == np.int64
    assert np.bincount(found.assignment, minlength=clusters).shape == (clusters,)
    assert np.bincount(found.assignment, minlength=clusters).min() >= 1
    assert found.report is not None
    reached = slow_objective(fleet, found.assignment, clusters)
    assert (found.report.after.balance, found.report.after.composition) == pytest.approx(reached, abs=1e-12)


@pytest.mark.parametrize("rule", ["random", "size_balanced", "label_aware"])
def test_the_same_arguments_give_the_same_clusters(rule: str) -> None:
    fleet = fleet_of(np.random.default_rng(0).integers(1, 30, size=(60, 4)))
    config = ClusteringConfig(rule=rule)
    first, second = cluster(config, fleet, 5, seed=1), cluster(config, fleet, 5, seed=1)
    assert np.array_equal(first.assignment, second.assignment)
    assert first.report == second.report


@pytest.mark.parametrize("rule", ["size_balanced", "label_aware"])
def test_rules_that_draw_nothing_ignore_the_seed(rule: str) -> None:
    fleet = fleet_of(np.random.default_rng(0).integers(1, 30, size=(60, 4)))
    config = ClusteringConfig(rule=rule)
    assert np.array_equal(cluster(config, fleet, 5, seed=1).assignment, cluster(config, fleet, 5, 2, 7).assignment)


def test_random_clusters_differ_by_seed_and_by_redraw_and_by_at_most_one_client() -> None:
    fleet = counts_only([1] * 50)
    drawn = [cluster(RANDOM, fleet, 4, seed, redraw).assignment for seed, redraw in ((0, 0), (0, 1), (1, 0))]
    assert len({tuple(assignment) for assignment in drawn}) == 3
    for assignment in drawn:
        assert sorted(np.bincount(assignment)) == [12, 12, 13, 13]


def slow_size_balanced(counts: list[int], clusters: int) -> list[int]:
    cap = -(-len(counts) // clusters)
    samples, members, assignment = [0] * clusters, [0] * clusters, [0] * len(counts)
    for k in sorted(range(len(counts)), key=lambda k: (-counts[k], k)):
        n = min((n for n in range(clusters) if members[n] < cap), key=lambda n: (samples[n], n))
        assignment[k], samples[n], members[n] = n, samples[n] + counts[k], members[n] + 1
    return assignment


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.data())
def test_size_balanced_places_the_largest_first_where_it_is_lightest(counts: list[int], data: st.DataObject) -> None:
    clusters = data.draw(st.integers(1, len(counts)))
    assert size_balanced(counts_only(counts), clusters).tolist() == slow_size_balanced(counts, clusters)


def test_size_balanced_needs_only_counts_and_then_reports_no_objective() -> None:
    found = cluster(SIZE_BALANCED, counts_only([9, 5, 4]), 2, seed=0)
    assert found.assignment.tolist() == [0, 1, 1]
    assert found.report is None


def test_a_rule_that_does_not_search_reports_the_same_objective_before_and_after() -> None:
    report = cluster(SIZE_BALANCED, fleet_of(np.array([[9, 0], [0, 5], [0, 4]])), 2, seed=0).report
    assert report is not None
    assert report.before == report.after
    assert (report.moves, report.swaps, report.optimum_of) == (0, 0, "nothing")


def test_label_aware_without_histograms_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"only counts.*size_balanced"):
        cluster(ClusteringConfig(rule="label_aware"), counts_only([3, 4]), 2, seed=0)


@pytest.mark.parametrize("clusters", [0, 4])
def test_a_number_of_clusters_that_clients_cannot_fill_is_refused(clusters: int) -> None:
    with pytest.raises(ConfigError, match="between 1 and 3"):
        cluster(RANDOM, counts_only([1, 1, 1]), clusters, seed=0)


def everyone_alone(fleet: Fleet, clusters: int, generator: np.random.Generator) -> IntArray:
    return np.arange(fleet.clients)


def test_a_rule_of_ones_own_can_be_given_as_a_function() -> None:
    found = cluster(RANDOM, counts_only([1, 1, 1]), 3, seed=0, rule=everyone_alone)
    assert found.assignment.tolist() == [0, 1, 2]


def test_a_rule_of_ones_own_can_be_named_in_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rules.py").write_text("def halves(fleet, n, generator):\n    return [0, 0, 1, 1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = cluster(ClusteringConfig(rule="my_rules:halves"), counts_only([1, 2, 3, 4]), 2, seed=0)
    assert found.assignment.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([0, 1], r"each of 3 clients; .*shape \(2,\)"),
        ([0.0, 1.0, 0.0], "as integers; it returned float64"),
        ([0, 1, 2], "0 to 1, .*it returned clusters 0 to 2"),
        ([0, -1, 0], "returned clusters -1 to 0"),
        ([0, 0, 0], "leave none empty; cluster 1 got no client"),
    ],
)
def test_what_a_rule_of_ones_own_gets_wrong_is_said(answer: list[int], complaint: str) -> None:
    def mistaken(fleet: Fleet, clusters: int, generator: np.random.Generator) -> IntArray:
        return np.array(answer)

    with pytest.raises(ConfigError, match=complaint):
        cluster(RANDOM, counts_only([1, 1, 1]), 2, seed=0, rule=mistaken)


def test_a_rule_of_ones_own_that_fails_is_named_with_how_it_is_called() -> None:
    def forgetful(fleet: Fleet, clusters: int, generator: np.random.Generator) -> IntArray:
        raise KeyError("sizes")

    with pytest.raises(ConfigError, match=r"'forgetful' failed: KeyError: 'sizes'; it is called as rule"):
        cluster(RANDOM, counts_only([1, 1, 1]), 2, seed=0, rule=forgetful)


def test_an_unknown_rule_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"size_balance.*did you mean 'size_balanced'"):
        cluster(ClusteringConfig(rule="size_balance"), counts_only([1, 1]), 2, seed=0)


def test_every_rule_says_what_it_discloses() -> None:
    assert discloses("random") == "nothing"
    assert discloses("size_balanced") == "one sample count per client"
    assert "histogram" in discloses("label_aware")
    assert "all of it" in discloses("my_rules:halves")
