"""The paper's own setting: 50,000 samples of ten classes on 256 clients, two classes each, alpha = 3, batches of 64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from gcpsl.clustering import Clustering, cluster
from gcpsl.config import ClusteringConfig
from gcpsl.data import extended_dirichlet
from gcpsl.fleet import Fleet, IntArray

BATCH = 64
SIZE_BALANCED = ClusteringConfig(rule="size_balanced")
DEFAULT = ClusteringConfig(rule="label_aware")
LITERAL = ClusteringConfig(rule="label_aware", start="size_balanced", swaps=False)
PAPER_FIT = ClusteringConfig(
    rule="label_aware", start="round_robin", swaps=False, measure="distance", composition_weight=10
)


def paper_fleet(seed: int) -> Fleet:
    labels = np.arange(50_000) % 10
    owners = extended_dirichlet.gpsl(256, 2, 3.0, labels, 10, np.random.default_rng(seed))
    return Fleet.from_owners(owners, labels, 10)


@pytest.fixture(scope="module", name="fleets")
def _fleets() -> list[Fleet]:
    return [paper_fleet(seed) for seed in range(10)]


def rounds(fleet: Fleet, found: Clustering) -> IntArray:
    samples = np.bincount(found.assignment, weights=fleet.counts).astype(np.int64)
    return -(-samples // BATCH)


def expected_deviation(fleet: Fleet, found: Clustering) -> float:
    """The mean L1 distance, to the global shares, of batches drawn without replacement; rounds count alike."""
    assert fleet.histograms is not None
    shares = fleet.histograms.sum(axis=0) / fleet.samples
    drawn = np.arange(BATCH + 1)
    total = 0.0
    for n, r in enumerate(rounds(fleet, found)):
        held = fleet.histograms[found.assignment == n].sum(axis=0)
        likely = hypergeom.pmf(drawn[:, None], held.sum(), held, BATCH)
        total += r * float((likely * np.abs(drawn[:, None] / BATCH - shares)).sum())
    return total / int(rounds(fleet, found).sum())


@pytest.mark.parametrize(("clusters", "expected"), [(2, 391), (4, 196), (8, 98)])
def test_size_balancing_evens_out_the_rounds(fleets: list[Fleet], clusters: int, expected: int) -> None:
    for fleet in fleets:
        assert set(rounds(fleet, cluster(SIZE_BALANCED, fleet, clusters, seed=0))) == {expected}


@pytest.mark.parametrize(("clusters", "moves_max"), [(2, 0), (4, 0), (8, 1)])
def test_the_papers_rule_taken_literally_makes_hardly_a_move(
    fleets: list[Fleet], clusters: int, moves_max: int
) -> None:
    """None at all, but for a single one, at N = 8, on one of the ten partitions."""
    reports = [cluster(LITERAL, fleet, clusters, seed=0).report for fleet in fleets]
    moves = [report.moves for report in reports if report is not None]
    assert len(moves) == len(fleets)
    assert sum(moves) <= moves_max


@pytest.mark.parametrize(("clusters", "expected"), [(2, 391), (4, 196), (8, 98)])
def test_the_default_rule_keeps_the_rounds_even_and_lowers_the_objective_tenfold(
    fleets: list[Fleet], clusters: int, expected: int
) -> None:
    for fleet in fleets:
        found, literal = cluster(DEFAULT, fleet, clusters, seed=0), cluster(LITERAL, fleet, clusters, seed=0)
        assert max(rounds(fleet, found)) == expected
        assert found.report is not None
        assert literal.report is not None
        assert found.report.after.total < literal.report.after.total / 10


def test_batches_of_the_default_rule_are_as_near_to_the_global_classes_as_the_papers(fleets: list[Fleet]) -> None:
    deviations = [expected_deviation(fleet, cluster(DEFAULT, fleet, 8, seed=0)) for fleet in fleets]
    assert np.mean(deviations) <= 0.31
    assert max(deviations) <= 0.31


def test_batches_of_the_size_balanced_rule_stray_as_far_as_the_papers(fleets: list[Fleet]) -> None:
    deviations = [expected_deviation(fleet, cluster(SIZE_BALANCED, fleet, 8, seed=0)) for fleet in fleets]
    assert np.mean(deviations) == pytest.approx(0.44, abs=0.02)


def test_the_variant_that_fits_the_papers_figures_has_its_longer_schedules(fleets: list[Fleet]) -> None:
    found = [cluster(PAPER_FIT, fleet, 8, seed=0) for fleet in fleets]
    deviations = [expected_deviation(fleet, f) for fleet, f in zip(fleets, found, strict=True)]
    longest = [rounds(fleet, f).max() for fleet, f in zip(fleets, found, strict=True)]
    assert np.mean(deviations) == pytest.approx(0.302, abs=0.004)
    assert 100 <= np.mean(longest) <= 106
