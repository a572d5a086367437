"""A small residual network that the stacked kernels know, its replicas, and the rows that hold them."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gcpsl.config import ModelConfig, OptimizerConfig
from gcpsl.flat import FlatSegment, Stack
from gcpsl.kernels.network import Rows
from gcpsl.models import SplitModel, build
from gcpsl.models.zoo.resnet import BasicBlock, Bottleneck


class SmallResNet(nn.Module):
    """Every kind of block: identity and downsampled shortcuts, stride 1 and 2, basic and bottleneck."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(BasicBlock(16, 16, 1), BasicBlock(16, 32, 1))
        self.layer2 = nn.Sequential(BasicBlock(32, 32, 2), BasicBlock(32, 32, 1), Bottleneck(32, 16, 2))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x)))))
        return cast(Tensor, self.fc(self.avgpool(y).flatten(1)))


def small_resnet(input_shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Norms begin with weights and biases of their own, so that no gradient is special."""
    model = SmallResNet(input_shape[0], classes)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return model


def split_model(cut: str = "layer2", skips: bool = True, shape: tuple[int, int, int] = (3, 16, 16)) -> SplitModel:
    config = ModelConfig(name="resnet18", cut=cut, groups=8, client_skips=skips)
    return build(config, shape, 5, 0, None if not skips else small_resnet)


def stack_of(
    model: SplitModel, n: int, dtype: torch.dtype = torch.float64
) -> tuple[list[tuple[FlatSegment, FlatSegment]], Stack]:
    """N replicas, each a little different, in one stack."""
    optimizer = OptimizerConfig()
    replicas = []
    for _ in range(n):
        sides = [FlatSegment(side.to(dtype), optimizer, channels_last=True) for side in (model.client, model.server)]
        for side in sides:
            side.parameters.data += 0.02 * torch.randn_like(side.parameters)
        replicas.append((sides[0], sides[1]))
    return replicas, Stack(replicas, optimizer)


def rows_of(stack: Stack, compute: torch.dtype = torch.float64) -> Rows:
    return Rows(stack.parameters, stack.gradients, stack.norm_state, stack.parameters.to(compute))
