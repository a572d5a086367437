"""A multilayer perceptron: three hidden layers of 256, no norms."""

from __future__ import annotations

import math
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 256


class Mlp(nn.Module):
    """hidden1, hidden2, hidden3, fc on the flattened image."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(inputs, WIDTH)
        self.hidden2 = nn.Linear(WIDTH, WIDTH)
        self.hidden3 = nn.Linear(WIDTH, WIDTH)
        self.fc = nn.Linear(WIDTH, classes)
        for layer in (self.hidden1, self.hidden2, self.hidden3):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.hidden1(x.flatten(1)))
        y = F.relu(self.hidden2(y))
        y = F.relu(self.hidden3(y))
        return cast(Tensor, self.fc(y))


def mlp(input_shape: tuple[int, int, int], classes: int) -> Mlp:
    return Mlp(math.prod(input_shape), classes)
