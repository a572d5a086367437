"""Cutting a model: where it can be done, that nothing changes by it, and what is said where it can't."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gcpsl.errors import SplitError
from gcpsl.models import Segments, cuts, split


class Net(nn.Module):
    """A model of a few layers of 6, whose forward each test gives."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def linear() -> nn.Linear:
    return nn.Linear(6, 6)


def train_step(forward: list[nn.Module], x: Tensor) -> Tensor:
    """A forward and backward through the chain, detached between its members as on a wire; the output."""
    leaves: list[Tensor] = []
    outputs: list[Tensor] = []
    torch.manual_seed(5)
    for module in forward:
        leaves.append(x)
        x = module(x)
        outputs.append(x)
        x = x.detach().requires_grad_()
    outputs[-1].square().sum().backward()
    for output, leaf in zip(reversed(outputs[:-1]), reversed(leaves[1:]), strict=True):
        output.backward(leaf.grad)
    return outputs[-1].detach()


def gradients(*modules: nn.Module) -> dict[str, Tensor]:
    """By name; a layer that forward never uses has none."""
    found = {n: p.grad for module in modules for n, p in module.named_parameters() if p.grad is not None}
    for module in modules:
        module.zero_grad()
    return found


def assert_same_training(model: nn.Module, at: str, x: Tensor) -> Segments:
    """Split and unsplit give the same bits: output, gradients, parameter names, buffers."""
    whole = copy.deepcopy(model)
    expected = train_step([whole], x)
    parts = split(model, at, x)
    sides = [parts.client, parts.server]
    assert torch.equal(train_step(sides, x), expected)
    wanted, got = gradients(whole), gradients(*sides)
    assert wanted.keys() == got.keys()
    assert all(torch.equal(got[name], gradient) for name, gradient in wanted.items())
    state = {**parts.client.state_dict(), **parts.server.state_dict()}
    assert wanted.keys() <= state.keys() <= whole.state_dict().keys()
    assert all(torch.equal(whole.state_dict()[name], value) for name, value in state.items())
    return parts


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


# --- a law: random graphs ---------------------------------------------------------------------------------


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


# --- forwards that people write ---------------------------------------------------------------------------


class Functional(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.a(x)).unsqueeze(1)
        x = torch.cat([x, x.flip(-1) * self.scale], dim=-1)
        x = F.dropout(x, 0.5, self.training)
        return cast(Tensor, self.b(x.flatten(1)))

    def __init__(self) -> None:
        super().__init__(a=linear(), b=nn.Linear(12, 3))
        self.scale = nn.Parameter(torch.ones(6))


class Skips(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=linear(), c=linear(), d=linear())

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        y = y + self.c(self.b(y))
        return cast(Tensor, self.d(y))


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


class Nested(Net):
    """The cut is inside a block, after a norm and a dropout."""

    def __init__(self) -> None:
        inner = nn.Sequential(linear(), nn.BatchNorm1d(6), nn.Dropout(0.5), linear(), nn.BatchNorm1d(6))
        super().__init__(stem=linear(), blocks=nn.Sequential(linear(), inner), head=linear())

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.head(self.blocks(self.stem(x))))


class Wide(Net):
    """Takes options that have defaults, and hides control flow in a submodule off the cut's path."""

    def __init__(self) -> None:
        super().__init__(a=Branching(), b=linear())

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 2.0) -> Tensor:
        y = self.a(x) * scale
        return cast(Tensor, self.b(y if mask is None else y * mask))


class Branching(Net):
    def __init__(self) -> None:
        super().__init__(inner=linear(), outer=linear())

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return cast(Tensor, self.outer(y) if y.sum() > 0 else -self.outer(y))


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


# --- what can't be cut ------------------------------------------------------------------------------------


class Shared(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=linear())
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.b(self.a(x)))


class SharedDirectly(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=linear())
        self.scale = nn.Parameter(torch.ones(6))
        self.shift = torch.ones(6)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.b(self.a(x) * self.scale + self.shift) * self.scale + self.shift)


class Twice(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=linear(), c=linear(), unused=linear())

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.c(self.b(torch.tanh(self.b(self.a(x))))))


class DataDependent(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=linear())

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        if y.sum() > 0:
            y = -y
        return cast(Tensor, self.b(y))


class TwoInputs(Net):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return cast(Tensor, self.b(self.a(x) + y))


class InPlace(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(linear(), nn.ReLU(inplace=True), linear())


class Bare(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), linear(), nn.LogSoftmax(1))


class Tupled(Net):
    def __init__(self) -> None:
        super().__init__(a=nn.GRU(6, 6), b=Last())

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.b(self.a(x)))


class Last(Net):
    def __init__(self) -> None:
        super().__init__(fc=linear())

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return cast(Tensor, self.fc(pair[0]))


class Transposed(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.b(self.a(x).T).T)


class Integers(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=nn.Embedding(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.b((self.a(x) > 0).long()))


REFUSALS = [
    (Skips(), "cc", ["no submodule 'cc'", "choose one of: b, d"]),
    (Skips(), "", ["no submodule ''"]),
    (Nested(), "block", ["did you mean 'blocks'?"]),
    (Skips(), "c", ["2 values cross", "the output of 'a'", "the output of 'b'", "valid cuts: b, d"]),
    (Skips(), "a", ["the client would be empty"]),
    (Shared(), "b", ["same parameters", "a.weight", "valid cuts: none"]),
    (SharedDirectly(), "b", ["same parameters", "scale"]),
    (Twice(), "b", ["called 2 times", "exactly one call"]),
    (Twice(), "unused", ["never called"]),
    (DataDependent(), "b", ["control flow", "TraceError", "if y.sum() > 0:", "test_splitting.py:"]),
    (Wide(), "a.outer", ["forward of Wide and of a", "if y.sum() > 0", "cut at a submodule that doesn't"]),
    (TwoInputs(a=linear(), b=linear()), "b", ["one input", "missing 1 required positional argument"]),
    (InPlace(), "1", ["in place", "valid cuts: 2"]),
    (Bare(), "1", ["client would have no parameters"]),
    (Bare(), "2", ["server would have no parameters"]),
    (Tupled(), "b", ["a tuple crosses"]),
    (Transposed(), "b", ["4 samples cross the cut as a tensor of (6, 4)"]),
    (Integers(), "b", ["torch.int64", "no gradient"]),
]


@pytest.mark.parametrize(("model", "at", "said"), REFUSALS, ids=[f"{type(m).__name__}-{at}" for m, at, _ in REFUSALS])
def test_a_refusal_says_why_and_where_it_would_work(model: nn.Module, at: str, said: list[str]) -> None:
    with pytest.raises(SplitError) as refusal:
        split(model, at, X)
    for part in said:
        assert part in str(refusal.value)


def test_a_model_without_cuts_says_so() -> None:
    with pytest.raises(SplitError, match="it has no valid cut"):
        split(DataDependent(), "bb")


def test_statistics_on_both_sides_are_refused_and_stateless_modules_are_not() -> None:
    class Both(Net):
        def forward(self, x: Tensor) -> Tensor:
            return cast(Tensor, self.both(self.b(self.both(self.a(x)))))

    with pytest.raises(SplitError, match=r"statistics: both\.num_batches_tracked"):
        split(Both(a=linear(), b=linear(), both=nn.BatchNorm1d(6, affine=False)), "b")
    assert_same_training(Both(a=linear(), b=linear(), both=nn.ReLU()), "b", X)


def test_a_constant_may_be_read_on_both_sides() -> None:
    class Constant(Net):
        def __init__(self) -> None:
            super().__init__(a=linear(), b=linear())
            self.register_buffer("shift", torch.full((6,), 2.0))

        def forward(self, x: Tensor) -> Tensor:
            return cast(Tensor, self.b(self.a(x) + self.shift) + self.shift)

    assert_same_training(Constant(), "b", X)
