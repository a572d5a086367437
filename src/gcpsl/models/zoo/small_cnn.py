"""A small convolutional network for 8x8 to 32x32 images, quick enough to train on a laptop's CPU."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class SmallCnn(nn.Module):
    """stage1, stage2, stage3, pool, fc: three convolutions, the first and last halving the image."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.stage1 = _stage(channels, 16, 2)
        self.stage2 = _stage(16, 32, 1)
        self.stage3 = _stage(32, 64, 2)
        # an 8x8 image is 2x2 by now, and pooling that costs as much as a convolution
        self.pool = nn.Identity() if (height, width) == (8, 8) else nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(64 * 2 * 2, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(self.stage3(self.stage2(self.stage1(x))))
        # flattened with channels last, as the layers before keep them: no copy, and gradients keep that layout
        return cast(Tensor, self.fc(y.permute(0, 2, 3, 1).flatten(1)))


def small_cnn(input_shape: tuple[int, int, int], classes: int) -> SmallCnn:
    return SmallCnn(input_shape, classes)
