"""Residual networks for small images: torchvision's blocks under a 3x3 stride-1 stem without max-pool.

ReLUs are never in place: the tensor at a cut must survive both sides. Filters keep PyTorch's own initialisation, 2.4
times smaller than torchvision's: behind a norm only the direction of a filter counts, so a small one turns faster.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Residual(nn.Module):
    """A block that adds its input, or `downsample` of it, to what its convolutions make of it."""

    expansion: int

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def without_skip(self) -> nn.Sequential:
        """The same layers under the same names as a plain chain, a ReLU after each norm and no shortcut."""
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for name, layer in self.named_children():
            if name != "downsample":
                layers[name] = layer
            if name.startswith("bn"):
                layers[name.replace("bn", "relu")] = nn.ReLU()
        return nn.Sequential(layers)


class BasicBlock(Residual):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x))


class Bottleneck(Residual):
    """1x1, 3x3 and 1x1 convolutions; the 3x3 carries the stride."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width * self.expansion, stride)
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, width * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x))


def _stage(block: type[Residual], inputs: int, width: int, depth: int, stride: int) -> nn.Sequential:
    rest = (block(width * block.expansion, width, 1) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, width, stride), *rest)


class ResNet(nn.Module):
    """conv1, bn1, layer1..layer4, avgpool, fc: every stage, and every block within one, is a valid cut."""

    def __init__(self, channels: int, classes: int, block: type[Residual], depths: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = _conv(channels, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        e = block.expansion
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, 64 * e, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 128 * e, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 256 * e, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * e, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return cast(Tensor, self.fc(self.avgpool(y).flatten(1)))


def drop_skips(segment: nn.Module) -> None:
    """Replaces, in place, every residual block of a segment by the chain of its layers."""
    for name, block in list(segment.named_modules()):
        if isinstance(block, Residual):
            segment.set_submodule(name, block.without_skip())


def resnet18(input_shape: tuple[int, int, int], classes: int) -> ResNet:
    return ResNet(input_shape[0], classes, BasicBlock, (2, 2, 2, 2))


def resnet34(input_shape: tuple[int, int, int], classes: int) -> ResNet:
    return ResNet(input_shape[0], classes, BasicBlock, (3, 4, 6, 3))


def resnet50(input_shape: tuple[int, int, int], classes: int) -> ResNet:
    return ResNet(input_shape[0], classes, Bottleneck, (3, 4, 6, 3))
