"""Fusion is the sample-weighted mean, and changes nothing where replicas are equal."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gcpsl import fusion
from gcpsl.fusion import drift, fuse

finite = st.floats(-1e6, 1e6, width=32)
shares = st.lists(st.integers(1, 1000), min_size=1, max_size=6)


def weights_of(samples: list[int]) -> list[float]:
    return [count / sum(samples) for count in samples]


@given(st.lists(finite, min_size=1, max_size=20), shares)
def test_fusing_equal_replicas_changes_no_bit(values: list[float], samples: list[int]) -> None:
    replicas = [[torch.tensor(values)] for _ in samples]
    into = [torch.empty(len(values))]
    fuse(replicas, weights_of(samples), into)
    assert torch.equal(into[0], replicas[0][0])


@given(st.integers(1, 5), st.integers(1, 30), st.integers(0, 99))
def test_fusion_is_the_weighted_mean_element_by_element(count: int, length: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    replicas = [[torch.randn(length, generator=generator)] for _ in range(count)]
    weights = weights_of([n + 1 for n in range(count)])
    into = [torch.empty(length)]
    fuse(replicas, weights, into)
    slow = [sum(w * float(r[0][i]) for w, r in zip(weights, replicas, strict=True)) for i in range(length)]
    assert torch.allclose(into[0].double(), torch.tensor(slow, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_the_order_of_replicas_does_not_matter_beyond_rounding() -> None:
    replicas = [[torch.randn(50)] for _ in range(3)]
    there, back = [torch.empty(50)], [torch.empty(50)]
    fuse(replicas, [0.5, 0.3, 0.2], there)
    fuse(replicas[::-1], [0.2, 0.3, 0.5], back)
    assert torch.allclose(there[0], back[0], rtol=1e-6)


def test_counters_round_to_the_nearest_integer() -> None:
    into = [torch.empty(2, dtype=torch.int64)]
    fuse([[torch.tensor([10, 3])], [torch.tensor([20, 4])]], [0.26, 0.74], into)
    assert into[0].tolist() == [17, 4]


def test_large_buffers_are_summed_in_chunks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "CHUNK", (7, 7))
    replicas = [[torch.randn(23)] for _ in range(2)]
    into = [torch.empty(23)]
    fuse(replicas, [0.25, 0.75], into)
    assert torch.allclose(into[0], 0.25 * replicas[0][0] + 0.75 * replicas[1][0], atol=1e-7)


def test_drift_is_the_relative_rms_distance_from_the_mean() -> None:
    replicas: list[list[Tensor]] = [[torch.tensor([1.0, 0.0])], [torch.tensor([0.0, 1.0])]]
    assert drift(replicas, [0.5, 0.5], [torch.tensor([0.5, 0.5])]) == pytest.approx(math.sqrt(0.5) / math.sqrt(0.5))
    assert drift([replicas[0], replicas[0]], [0.5, 0.5], replicas[0]) == 0
    assert drift([[torch.zeros(2)], [torch.zeros(2)]], [0.5, 0.5], [torch.zeros(2)]) == 0
