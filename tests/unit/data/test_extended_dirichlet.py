"""The vectorised draws of the extended Dirichlet partitions, against slow twins written as they were published."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gcpsl.data.extended_dirichlet import _even_support, _li_lyu_counts, gpsl


def slow_even_support(clients: int, per_client: int, classes: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """One client at a time, one class at a time, with the weights written out."""
    used = [0] * classes
    holds = np.zeros((clients, classes), np.bool_)
    for client in range(clients):
        weights = np.array([np.exp(-classes * (u - min(used))) for u in used])
        for label in generator.choice(classes, per_client, replace=False, p=weights / weights.sum()):
            holds[client, label] = True
            used[label] += 1
    return holds


def test_the_support_is_drawn_from_the_published_law() -> None:
    """Two clients of three classes: every joint outcome is as frequent as in the slow twin."""
    draws = 4000
    frequencies = []
    for draw, seed in ((_even_support, 0), (slow_even_support, 1)):
        generator = np.random.default_rng(seed)
        codes = [int(draw(3, 1, 2, generator).ravel() @ (1 << np.arange(6))) for _ in range(draws)]
        frequencies.append(np.bincount(codes, minlength=64) / draws)
    assert np.abs(frequencies[0] - frequencies[1]).max() < 4 * np.sqrt(0.25 / draws)
    assert frequencies[0].max() > 0.2


@given(clients=st.integers(1, 60), per_client=st.integers(1, 10), classes=st.integers(10, 20), seed=st.integers(0, 99))
def test_the_support_is_even(clients: int, per_client: int, classes: int, seed: int) -> None:
    holds = _even_support(clients, per_client, classes, np.random.default_rng(seed))
    assert (holds.sum(axis=1) == per_client).all()
    holders = holds.sum(axis=0)
    # a class that is one use ahead has weight exp(-10) or less
    assert holders.max() - holders.min() <= 2


@settings(deadline=None)
@given(clients=st.integers(1, 12), seed=st.integers(0, 10_000), alpha=st.floats(0.1, 10))
def test_li_lyu_counts_match_the_slow_twin(clients: int, seed: int, alpha: float) -> None:
    classes = 4
    generator = np.random.default_rng(seed)
    holds = generator.random((clients, classes)) < 0.6
    holds[generator.integers(clients), :] = True
    sizes = generator.integers(0, 50, classes)
    fast = _li_lyu_counts(holds, sizes, alpha, np.random.default_rng(seed))

    generator = np.random.default_rng(seed)
    slow = np.zeros((clients, classes), np.int64)
    for label in range(classes):
        shares = generator.dirichlet([alpha] * clients)
        allowed = [holds[k, label] and slow[k].sum() < sizes.sum() / clients for k in range(clients)]
        masked = np.array([share if ok else 0.0 for share, ok in zip(shares, allowed, strict=True)])
        if masked.sum() == 0:
            slow[:] = 0
            break
        masked /= masked.sum()
        cut, running = 0, 0.0
        for k in range(clients):
            running += masked[k]
            slow[k, label] = int(running * sizes[label]) - cut
            cut = int(running * sizes[label])
        slow[max(k for k in range(clients) if holds[k, label]), label] += sizes[label] - cut
    assert np.array_equal(fast, slow)


def test_a_class_without_samples_is_no_obstacle() -> None:
    labels = np.repeat([0, 2], 100)
    owners = gpsl(6, 2, 3.0, labels, 3, np.random.default_rng(0))
    assert len(owners) == 200
    assert set(owners.tolist()) <= set(range(6))
