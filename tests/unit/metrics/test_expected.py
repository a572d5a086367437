"""The closed forms equal exact fractions on small cases and the sampler's averages on larger ones."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcpsl.fleet import IntArray
from gcpsl.metrics import (
    batch_deviation,
    expected_deviation,
    expected_participation,
    observed,
)
from gcpsl.sampling import EpochPlan, Holdings, batch_sizes, epoch_plan


@given(counts=st.lists(st.integers(1, 300), min_size=1, max_size=7), batch_size=st.integers(1, 400))
def test_expected_active_clients_are_ratios_of_binomials(counts: list[int], batch_size: int) -> None:
    total = sum(counts)
    exact = sum(
        1 - Fraction(comb(total - count, size), comb(total, size))
        for size in batch_sizes(total, batch_size).tolist()
        for count in counts
    )
    result = expected_participation(np.array(counts), np.zeros(len(counts), np.int64), batch_size)
    assert result.active == pytest.approx(float(exact), rel=1e-12)


def test_nothing_is_lost_with_a_hundred_million_samples() -> None:
    counts, batch = (1, 1_000_000, 98_999_999), 64
    total = sum(counts)
    expected = expected_participation(np.array(counts), np.zeros(3, np.int64), batch)
    exact = sum(1 - Fraction(comb(total - count, batch), comb(total, batch)) for count in counts)
    assert expected.active / expected.schedule.rounds_max == pytest.approx(float(exact), rel=1e-12)


def test_the_deviation_of_a_huge_cluster_is_that_of_draws_with_replacement() -> None:
    """Products of its counts lie far outside the range of int64."""
    binomial = [comb(2, drawn) / 4 for drawn in range(3)]
    with_replacement = sum(p * 2 * abs(drawn / 2 - 0.5) for drawn, p in enumerate(binomial))
    assert expected_deviation(np.array([[10**17, 10**17]]), 2) == pytest.approx(with_replacement)


@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=4), batch_size=st.integers(1, 6))
@settings(max_examples=40)
def test_expected_active_clients_equal_the_average_over_every_possible_batch(
    counts: list[int], batch_size: int
) -> None:
    owners = [k for k, count in enumerate(counts) for _ in range(count)]
    active = Fraction(0)
    for size in batch_sizes(len(owners), batch_size).tolist():
        draws = list(combinations(owners, size))
        active += Fraction(sum(len(set(draw)) for draw in draws), len(draws))
    result = expected_participation(np.array(counts), np.zeros(len(counts), np.int64), batch_size)
    assert result.active == pytest.approx(float(active), rel=1e-12)


@given(
    histograms=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=3).filter(
        lambda rows: all(sum(row) > 0 for row in rows)
    ),
    batch_size=st.integers(1, 5),
)
@settings(max_examples=40)
def test_expected_deviation_equals_the_average_over_every_possible_batch(
    histograms: list[list[int]], batch_size: int
) -> None:
    assert expected_deviation(np.array(histograms), batch_size) == pytest.approx(
        _enumerated_deviation(histograms, batch_size), rel=1e-10
    )


def _enumerated_deviation(histograms: list[list[int]], batch_size: int) -> float:
    total = sum(map(sum, histograms))
    target = [Fraction(sum(column), total) for column in zip(*histograms, strict=True)]
    distances = []
    for row in histograms:
        labels = [c for c, count in enumerate(row) for _ in range(count)]
        for size in batch_sizes(len(labels), batch_size).tolist():
            draws = list(combinations(labels, size))
            distances.append(
                sum(abs(Fraction(draw.count(c), size) - target[c]) for draw in draws for c in range(3)) / len(draws)
            )
    return float(sum(distances) / len(distances))


def test_the_sampler_draws_what_the_closed_forms_expect() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, 1500)
    owners = np.concatenate([np.arange(40), rng.choice(40, 1460, p=rng.dirichlet(np.full(40, 2.0)))])
    assignment = rng.permutation(np.arange(40) % 3)
    counts = np.bincount(owners)
    expected = expected_participation(counts, assignment, 16)
    histograms = np.zeros((3, 5), np.int64)
    np.add.at(histograms, (assignment[owners], labels), 1)

    draws = [_draw(owners, assignment, epoch) for epoch in range(40)]
    seen = [observed(plans, expected.cluster_clients, 16) for plans in draws]
    deviations = [batch_deviation(plans, labels, 5) for plans in draws]
    assert all(one.schedule == expected.schedule for one in seen)
    assert np.mean([one.active for one in seen]) == pytest.approx(expected.active, rel=0.003)
    assert np.mean(deviations) == pytest.approx(expected_deviation(histograms, 16), rel=0.01)


def _draw(owners: IntArray, assignment: IntArray, epoch: int) -> list[EpochPlan]:
    holdings = Holdings.of(owners, len(assignment))
    return [
        epoch_plan(holdings, np.flatnonzero(assignment == n), 16, seed=1, cluster=n, epoch=epoch)
        for n in range(int(assignment.max()) + 1)
    ]


@given(counts=st.lists(st.integers(1, 500), min_size=4, max_size=30), batch_size=st.integers(1, 80))
def test_renaming_clients_changes_nothing(counts: list[int], batch_size: int) -> None:
    forward = np.array(counts)
    assignment = np.arange(len(counts)) % 2
    one = expected_participation(forward, assignment, batch_size)
    other = expected_participation(forward[::-1], assignment[::-1], batch_size)
    assert one.active == pytest.approx(other.active, rel=1e-9)


def test_a_batch_of_everything_has_everyone_and_no_deviation() -> None:
    counts = np.array([3, 5, 2])
    result = expected_participation(counts, np.zeros(3, np.int64), 10)
    assert (result.active, result.direct_ran) == (3, 1)
    assert expected_deviation(np.array([[6, 4]]), 10) == pytest.approx(0)
