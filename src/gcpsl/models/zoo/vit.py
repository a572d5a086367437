"""A small vision transformer: patch embedding, four pre-norm blocks, mean of the tokens.

Shapes: b samples, t tokens, h heads, d width.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 96
HEADS = 4
DEPTH = 4


class Embedding(nn.Module):
    """Cuts the image into square patches, projects each, and adds its learned position."""

    def __init__(self, input_shape: tuple[int, int, int], patch: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.project = nn.Conv2d(channels, WIDTH, patch, patch)
        self.position = nn.Parameter(torch.empty(1, (height // patch) * (width // patch), WIDTH))
        # as large as the projected pixels: a fainter one takes many epochs to be noticed under a mean of tokens
        nn.init.trunc_normal_(self.position, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        tokens_btd = self.project(x).flatten(2).transpose(1, 2)
        return cast(Tensor, tokens_btd + self.position)


class Attention(nn.Module):
    """Multi-head self-attention over the tokens of one image."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x_btd: Tensor) -> Tensor:
        q_bhtd, k_bhtd, v_bhtd = self.qkv(x_btd).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y_bhtd = F.scaled_dot_product_attention(q_bhtd, k_bhtd, v_bhtd)
        return cast(Tensor, self.out(y_bhtd.transpose(1, 2).flatten(2)))


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each on normalised tokens and added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x_btd: Tensor) -> Tensor:
        y_btd = x_btd + self.attention(self.norm1(x_btd))
        return cast(Tensor, y_btd + self.mlp(self.norm2(y_btd)))


class Vit(nn.Module):
    """embedding, blocks, norm, fc: every block is a valid cut."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.embedding = Embedding(input_shape, patch_size(input_shape))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        y_btd = self.norm(self.blocks(self.embedding(x)))
        return cast(Tensor, self.fc(y_btd.mean(1)))


def patch_size(input_shape: tuple[int, int, int]) -> int:
    """The largest patch that tiles the image and leaves about seven or more along its shorter side.

    2 for 8x8, 4 for 28x28 and 32x32.
    """
    _, height, width = input_shape
    largest = max(2, min(height, width) // 7)
    side = math.gcd(height, width)
    return max(patch for patch in range(1, largest + 1) if side % patch == 0)


def vit(input_shape: tuple[int, int, int], classes: int) -> Vit:
    return Vit(input_shape, classes)
