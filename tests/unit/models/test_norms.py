"""The client's norms."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gcpsl.errors import SplitError
from gcpsl.models import to_group_norm
from gcpsl.models.norms import group_count, refuse_single_values


@given(st.integers(1, 4096), st.integers(1, 64))
def test_groups_divide_the_channels_and_no_larger_number_allowed_does(channels: int, groups: int) -> None:
    count = group_count(channels, groups)
    assert channels % count == 0
    assert count <= groups
    assert all(channels % larger for larger in range(count + 1, min(groups, channels) + 1))


def test_batch_norms_become_group_norms_with_the_same_affine_parameters() -> None:
    inner = nn.Sequential(nn.Conv2d(2, 6, 1), norm := nn.BatchNorm2d(6, eps=1e-3))
    segment = nn.Sequential(nn.BatchNorm2d(2, affine=False), inner, nn.Flatten(2), nn.BatchNorm1d(6))
    nn.init.normal_(norm.weight)
    parameters = dict(segment.named_parameters())
    to_group_norm(segment, 4)
    norms = {name: m for name, m in segment.named_modules() if isinstance(m, nn.GroupNorm)}
    assert {name: (m.num_groups, m.num_channels, m.eps) for name, m in norms.items()} == {
        "0": (2, 2, 1e-5),
        "1.1": (3, 6, 1e-3),
        "3": (3, 6, 1e-5),
    }
    assert dict(segment.named_parameters()) == parameters
    assert not list(segment.buffers())


def test_a_group_norm_sees_one_sample_at_a_time() -> None:
    segment = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    to_group_norm(segment, 32)
    images = torch.randn(4, 1, 5, 5)
    alone = torch.cat([segment(image) for image in images.split(1)])
    assert torch.allclose(segment(images), alone, atol=1e-6)


class Fused(nn.BatchNorm2d):
    """A BatchNorm that also does something else, as some libraries have."""


@pytest.mark.parametrize(
    "norm",
    [nn.BatchNorm3d(4), nn.InstanceNorm2d(4, track_running_stats=True), nn.SyncBatchNorm(4), Fused(4)],
    ids=lambda norm: type(norm).__name__,
)
def test_other_norms_with_running_statistics_are_refused_by_name(norm: nn.Module) -> None:
    with pytest.raises(SplitError, match=rf"'odd' \({type(norm).__name__}\).*running statistics"):
        to_group_norm(nn.Sequential(OrderedDict(odd=norm)), 32)


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4)])
def test_norms_without_running_statistics_stay(norm: nn.Module) -> None:
    segment = nn.Sequential(norm)
    to_group_norm(segment, 32)
    assert segment[0] is norm


def test_groups_of_one_value_are_refused() -> None:
    segment = nn.Sequential(OrderedDict(fc=nn.Linear(3, 8), bn=nn.BatchNorm1d(8)))
    to_group_norm(segment, 8)
    with pytest.raises(SplitError, match=r"'bn' would normalise groups of a single value.*lower model\.groups"):
        refuse_single_values(segment, torch.zeros(2, 3))
    to_group_norm(fewer := nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8)), 4)
    refuse_single_values(fewer, torch.zeros(2, 3))
