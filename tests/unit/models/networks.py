"""Small models to be cut, and whether a cut changes their training."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from gcpsl.models import Segments, split

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


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


class Skips(Net):
    def __init__(self) -> None:
        super().__init__(a=linear(), b=linear(), c=linear(), d=linear())

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        y = y + self.c(self.b(y))
        return cast(Tensor, self.d(y))


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
