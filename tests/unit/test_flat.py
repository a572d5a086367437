"""A flat segment: one buffer each for parameters, gradients and normalisation state, with the module on top."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from gcpsl.config import OptimizerConfig
from gcpsl.flat import FlatSegment


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4 * 4, 5)
    )


def images() -> torch.Tensor:
    return torch.randn(6, 3, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_module_lives_in_the_buffers(channels_last: bool) -> None:
    module = network()
    segment = FlatSegment(module, OptimizerConfig(), channels_last=channels_last)
    assert segment.parameters.numel() == sum(p.numel() for p in module.parameters())
    assert segment.norm_state.numel() == 16
    assert segment.counters.numel() == 1
    storage = segment.parameters.untyped_storage().data_ptr()
    assert all(p.untyped_storage().data_ptr() == storage for p in segment.module.parameters())
    for name, value in module.state_dict().items():
        assert torch.equal(segment.module.state_dict()[name], value)


@pytest.mark.parametrize("channels_last", [False, True])
def test_filters_are_stored_channels_last_where_asked(channels_last: bool) -> None:
    segment = FlatSegment(network(), OptimizerConfig(), channels_last=channels_last)
    weight = next(segment.module.parameters())
    assert weight.is_contiguous(memory_format=torch.channels_last) == channels_last


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_training_it_is_training_the_module(kind: str, channels_last: bool) -> None:
    config = OptimizerConfig.model_validate({"kind": kind, "lr": 0.01})
    module = network()
    segment = FlatSegment(module, config, channels_last=channels_last)
    plain: torch.optim.Optimizer
    if kind == "sgd":
        plain = torch.optim.SGD(module.parameters(), 0.01, 0.9, nesterov=True, weight_decay=5e-4)
    else:
        plain = torch.optim.AdamW(module.parameters(), 0.01, weight_decay=5e-4)
    for _ in range(5):
        segment.module(images()).square().mean().backward()
        segment.update(0.01)
        plain.zero_grad()
        module(images()).square().mean().backward()
        plain.step()
    for name, value in module.state_dict().items():
        assert torch.allclose(segment.module.state_dict()[name], value, atol=1e-6), name
    assert segment.gradients.abs().sum() == 0


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_what_it_hands_out_restores_another_one_apart_from_it(kind: str) -> None:
    config = OptimizerConfig.model_validate({"kind": kind})
    one, other = (FlatSegment(network(), config, channels_last=True) for _ in range(2))
    for _ in range(3):
        one.module(images()).sum().backward()
        one.update(0.01)
    other.restore(one.tensors())
    frozen = copy.deepcopy(one.tensors())
    other.module(images()).sum().backward()
    other.update(0.01)
    assert all(torch.equal(value, frozen[name]) for name, value in one.tensors().items())
    one.module(images()).sum().backward()
    one.update(0.01)
    assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


def test_the_original_module_is_left_alone() -> None:
    module = network()
    before = copy.deepcopy(module.state_dict())
    segment = FlatSegment(module, OptimizerConfig(), channels_last=True)
    segment.module(images()).sum().backward()
    segment.update(0.1)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_parameters_that_do_not_train_stay_out_of_the_buffer() -> None:
    module = network()
    module[0].weight.requires_grad_(False)
    segment = FlatSegment(module, OptimizerConfig(), channels_last=False)
    assert segment.parameters.numel() == sum(p.numel() for p in module[1:].parameters())


def test_buffers_that_are_no_running_values_stay_as_they_are() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("mask", torch.tensor([True, False, True]))
            self.register_buffer("table", torch.ones(3, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.norm(x)
            return y.masked_fill(self.get_buffer("mask"), 0.0)

    segment = FlatSegment(Masked(), OptimizerConfig(), channels_last=True)
    segment.module(torch.randn(4, 3)).sum().backward()
    assert len(segment.norm_state) == 6
    assert segment.module.get_buffer("mask").dtype == torch.bool
    assert segment.module.get_buffer("table").dtype == torch.float64
