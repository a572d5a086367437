"""What can't be cut, and that a refusal says why."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor, nn
from unit.models.networks import Nested, Net, Skips, Wide, X, assert_same_training, linear

from gcpsl.errors import SplitError
from gcpsl.models import split


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
    (DataDependent(), "b", ["control flow", "TraceError", "if y.sum() > 0:", "test_refused_cuts.py:"]),
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
