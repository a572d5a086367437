"""Cutting a model: where it can be done, and that nothing changes by it."""

from __future__ import annotations

import copy
from functools import cache
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from unit.models.networks import Nested, Net, Skips, Wide, X, assert_same_training, linear

from gcpsl.models import cuts, split


class RandomNet(nn.Module):
    """Value i+1 is layer i of an earlier value, plus perhaps another earlier value; value 0 is the input."""

    def __init__(self, sources: list[tuple[int, int | None]]) -> None:
        super().__init__()
        self.sources = sources
        self.layers = nn.ModuleList(linear() for _ in sources)

    def forward(self, x: Tensor) -> Tensor:
        @cache
        def value(index: int) -> Tensor:
            if index == 0:
                return x
            source, skip = self.sources[index - 1]
            result = torch.tanh(self.layers[index - 1](value(source)))
            return result if skip is None else result + value(skip)

        return value(len(self.sources))

    def paths(self, index: int) -> list[set[int]]:
        """Every way from the input to a value, as the set of values on it."""
        if index == 0:
            return [{0}]
        sources = [source for source in self.sources[index - 1] if source is not None]
        return [path | {index} for source in sources for path in self.paths(source)]


@st.composite
def random_sources(draw: st.DrawFn) -> list[tuple[int, int | None]]:
    size = draw(st.integers(1, 6))
    back = [st.integers(max(0, index - 2), index) for index in range(size)]
    return [(draw(back[i]), draw(st.none() | st.integers(0, i))) for i in range(size)]


@settings(max_examples=60, deadline=None)
@given(random_sources())
def test_a_cut_is_valid_exactly_where_every_path_passes_it_and_then_changes_nothing(
    sources: list[tuple[int, int | None]],
) -> None:
    model = RandomNet(sources)
    paths = model.paths(len(sources))
    expected = [
        f"layers.{i}"
        for i, (source, _) in enumerate(sources)
        if source != 0 and any(i + 1 in path for path in paths) and all(source in path for path in paths)
    ]
    assert cuts(model, X) == expected
    for at in expected:
        assert_same_training(model, at, X)


class Functional(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.a(x)).unsqueeze(1)
        x = torch.cat([x, x.flip(-1) * self.scale], dim=-1)
        x = F.dropout(x, 0.5, self.training)
        return cast(Tensor, self.b(x.flatten(1)))

    def __init__(self) -> None:
        super().__init__(a=linear(), b=nn.Linear(12, 3))
        self.scale = nn.Parameter(torch.ones(6))


class BatchSize(Net):
    """Reads the batch size off the input, and uses it on both sides of the cut."""

    def __init__(self) -> None:
        super().__init__(a=linear(), b=linear())

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        rows, _ = x.size()
        torch._assert(x.shape[1] == 6, "six values each")
        y = self.a(x).view(n, 2, 3)
        y = self.b(y.reshape(rows, 6))
        return cast(Tensor, y.view(n, 3, 2).sum(1).reshape(x.size(0), -1))


class LateBatchSize(BatchSize):
    """Reads the batch size first, and uses it on the server only."""

    def forward(self, x: Tensor) -> Tensor:
        n, by_call = x.shape[0], x.size()[0]
        return cast(Tensor, self.b(torch.tanh(self.a(x))).view(n, 2, 3).sum(2).view(by_call, 2))


@pytest.mark.parametrize(
    ("model", "valid"),
    [
        (Functional(), ["b"]),
        (Skips(), ["b", "d"]),
        (BatchSize(), ["b"]),
        (LateBatchSize(), ["b"]),
        (Wide(), ["b"]),
        (
            Nested(),
            ["blocks", *("blocks." + n for n in ("0", "1", "1.0", "1.1", "1.2", "1.3", "1.4")), "head"],
        ),
        (nn.Sequential(linear(), nn.ReLU(), linear()), ["1", "2"]),
    ],
    ids=["functional", "skips", "batch size", "late batch size", "options", "nested", "sequential"],
)
def test_ordinary_models_can_be_cut_and_train_as_before(model: nn.Module, valid: list[str]) -> None:
    assert cuts(model, X) == valid
    for at in valid:
        assert_same_training(copy.deepcopy(model), at, X)


def test_parameters_are_shared_and_follow_a_replaced_storage() -> None:
    model = Skips()
    parts = split(model, "d")
    assert {id(p) for p in model.parameters()} == {
        id(p) for side in (parts.client, parts.server) for p in side.parameters()
    }
    flat = torch.zeros(sum(p.numel() for p in parts.client.parameters()))
    for p, view in zip(
        parts.client.parameters(), flat.split([p.numel() for p in parts.client.parameters()]), strict=True
    ):
        p.data = view.view_as(p)
    assert torch.equal(parts.client(X), torch.zeros(4, 6))


@pytest.mark.parametrize("model", [Functional(), Nested()])
def test_dropout_and_norms_follow_train_and_eval(model: nn.Module) -> None:
    parts = split(model, cuts(model)[-1])
    for mode in (False, True, False):
        for module in (model, parts.client, parts.server):
            module.train(mode)
        torch.manual_seed(3)
        expected = model(X)
        torch.manual_seed(3)
        assert torch.equal(parts.server(parts.client(X)), expected)
    parts.client.train()
    assert not torch.equal(parts.client(X), parts.client(X)), "dropout is on the client"


def test_splitting_leaves_modes_and_statistics_as_they_were() -> None:
    model = Nested()
    model.blocks.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    before = copy.deepcopy(model.state_dict())
    split(model, "blocks.1.1", X)
    cuts(model, X)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_segments_can_be_copied_for_replicas() -> None:
    parts = split(Functional(), "b")
    twin = copy.deepcopy(parts.client).eval()
    assert torch.equal(twin(X), parts.client.eval()(X))
    assert not {id(p) for p in twin.parameters()} & {id(p) for p in parts.client.parameters()}


def test_a_constant_may_be_read_on_both_sides() -> None:
    class Constant(Net):
        def __init__(self) -> None:
            super().__init__(a=linear(), b=linear())
            self.register_buffer("shift", torch.full((6,), 2.0))

        def forward(self, x: Tensor) -> Tensor:
            return cast(Tensor, self.b(self.a(x) + self.shift) + self.shift)

    assert_same_training(Constant(), "b", X)
