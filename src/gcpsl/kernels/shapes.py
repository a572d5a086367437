"""The shapes and arguments that both sets of operations share.

Tensor names end in their dimensions: n replicas, b samples of a batch, h and w rows and columns, k channels.
A replica's batch counts only its first `valid_n[n]` samples, 0 where the replica sits the round out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class ConvShape:
    """A square convolution, padded so that stride 1 keeps the image's size. `used` of the `inputs` have weights."""

    height: int
    width: int
    inputs: int
    outputs: int
    side: int = 1
    stride: int = 1
    unused: int = 0
    tf32: bool = False  # products of float32 values on the tensor cores

    @property
    def used(self) -> int:
        return self.inputs - self.unused

    @property
    def out_height(self) -> int:
        return -(-self.height // self.stride)

    @property
    def out_width(self) -> int:
        return -(-self.width // self.stride)

    @property
    def out_pixels(self) -> int:
        return self.out_height * self.out_width

    @property
    def weights(self) -> int:
        return self.outputs * self.side**2 * self.used


@dataclass(frozen=True)
class Addend:
    """A gradient of the same pixels that comes by another way: everywhere, or at even rows and columns."""

    kind: Literal["dense", "even"]
    values: Tensor


@dataclass(frozen=True)
class Norm:
    """One norm's parameters and state, a row per replica. `groups` 0 is a BatchNorm."""

    weight_nk: Tensor
    bias_nk: Tensor
    d_weight_nk: Tensor
    d_bias_nk: Tensor
    groups: int
    eps: float
    momentum: float = 0.0
    mean_nk: Tensor | None = None
    var_nk: Tensor | None = None


@dataclass(frozen=True)
class Origin:
    """The norm that a value came out of: what it read, its statistics, and where the ReLU behind it let through: where
    `mask` > 0, or where scale x + shift > 0 ("self"), or everywhere ("none")."""

    x: Tensor
    stats: Tensor
    mask: Tensor | Literal["self", "none"]
    per_sample: bool


@dataclass(frozen=True)
class Augmentation:
    """The samples on the device, and what is done to them: value = factor pixel + offset."""

    images: Tensor  # samples, rows, columns, channels
    labels: Tensor
    factor: Tensor  # channels
    offset: Tensor
    crop_padding: int
    flip: bool


@dataclass(frozen=True)
class Plan:
    """An epoch on the device: replica n's round t is `sizes_nt[n, t]` entries from `starts_nt[n, t]` on.

    `turn_n` is the round each replica takes next and `until_n` where it stops; `losses_nt` is filled as they go.
    """

    samples: Tensor
    bits: Tensor
    starts_nt: Tensor
    sizes_nt: Tensor
    losses_nt: Tensor
    turn_n: Tensor
    until_n: Tensor


@dataclass(frozen=True)
class Update:
    """One segment's flat buffers [n, row] and what an optimizer's step on them needs: gradients are divided by `scale`,
    and only replicas with `active_n` > 0 step. `compute` is the parameters once more in the precision of the products.
    """

    parameters: Tensor
    gradients: Tensor
    compute: Tensor | None
    lr: Tensor
    active_n: Tensor
    scale_n: Tensor


class Operations(Protocol):
    """Each in the place of one step of a round. Statistics are [4, n, 1 or b, k]: scale, shift, mean, 1/std."""

    def compiled_ahead(self) -> AbstractContextManager[None]:
        """Calls inside may do no more than have their kernels compiled."""
        ...

    def beside(self, lane: int, device: torch.device) -> AbstractContextManager[None]:
        """Calls inside may overlap with what follows; they come after what was called before, in this lane, in lower
        ones and outside. What they read must be kept until `join`."""
        ...

    def join(self, device: torch.device) -> None:
        """What follows comes after all that ran beside."""
        ...

    def take(self, plan: Plan, labels: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The next round's samples, bits and labels [n, b], and how many of them count [n]."""
        ...

    def advance(self, plan: Plan, losses_n: Tensor, valid_n: Tensor) -> None:
        """Write down the round's losses, and turn to the next."""
        ...

    def patches(
        self, source: Augmentation, samples_nb: Tensor, bits_nb: Tensor, valid_n: Tensor, stem: ConvShape, out: Tensor
    ) -> None:
        """What each pixel of the first convolution sees, as the rows of a matrix product: out[n, b, h, w, columns]."""
        ...

    def conv(
        self, x: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, *, per_sample: bool
    ) -> tuple[Tensor, Tensor]:
        """The outputs, and tiles' sums of them and of their squares [n, tiles, 2, k]; no tile spans two samples where
        `per_sample`."""
        ...

    def input_gradient(
        self, g: Tensor, w: Tensor, shape: ConvShape, valid_n: Tensor, add: Addend | None, origin: Origin | None
    ) -> tuple[Tensor, Tensor | None]:
        """With an origin, as `gradient_sums` leaves it, and its sums."""
        ...

    def weight_gradient(self, x: Tensor, g: Tensor, shape: ConvShape, valid_n: Tensor, out: Tensor) -> None: ...

    def statistics(self, sums: Tensor, norm: Norm, pixels: int, batch: int, valid_n: Tensor) -> Tensor:
        """Of the batch or of each sample; a BatchNorm's running statistics move on."""
        ...

    def apply(self, x: Tensor, stats: Tensor, valid_n: Tensor, skip: Tensor | None, *, relu: bool) -> Tensor:
        """relu(scale x + shift + skip), zero behind the valid samples."""
        ...

    def gradient_sums(self, g: Tensor, origin: Origin) -> Tensor:
        """Tiles' sums of the gradient and of the gradient times the normalised x [n, tiles, 2, k]. g is of what came
        out of the ReLU, and becomes zero where that let nothing through."""
        ...

    def norm_gradient(self, g: Tensor, sums: Tensor, origin: Origin, norm: Norm, valid_n: Tensor) -> Tensor:
        """The gradient of the norm's x, and of its parameters."""
        ...

    def loss(
        self, logits: Tensor, labels_nb: Tensor, valid_n: Tensor, smoothing: float, scale_n: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The mean smoothed cross-entropy of each replica, and its scale times the gradient."""
        ...

    def sgd(
        self, update: Update, momenta: Tensor | None, *, momentum: float, nesterov: bool, weight_decay: float
    ) -> None:
        """PyTorch's SGD."""
        ...

    def adamw(self, update: Update, mean: Tensor, square: Tensor, steps_n: Tensor, *, weight_decay: float) -> None:
        """PyTorch's AdamW with its default betas and epsilon."""
        ...
