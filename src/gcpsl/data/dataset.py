"""Samples in memory, checked once, and a data set of them. Knows no files, clients or settings.

Array names end in their shape: n samples, c channels, h rows, w columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcpsl.errors import DataError

IntArray = NDArray[np.int64]
ImageArray = NDArray[np.uint8] | NDArray[np.float32]

CHANNELS_MAX = 4
CLASSES_MAX = 100_000
"""Far above any real task: a label beyond it is a mistake, and would size every histogram."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Images [n, c, h, w], uint8 or float32, and one int64 label for each."""

    images: ImageArray
    labels: IntArray

    def __post_init__(self) -> None:
        if self.images.dtype not in (np.uint8, np.float32):
            raise DataError(f"images are {self.images.dtype}; they must be uint8 or float32")
        if self.images.ndim != 4 or 0 in self.images.shape[1:]:
            raise DataError(
                f"images have shape {list(self.images.shape)}; it must be [samples, channels, height, width]"
            )
        if self.labels.dtype != np.int64 or self.labels.ndim != 1:
            raise DataError(
                f"labels are {self.labels.dtype} of shape {list(self.labels.shape)}; they must be one int64 per image"
            )
        if len(self.images) != len(self.labels):
            raise DataError(f"there are {len(self.images)} images but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: IntArray) -> Samples:
        """A copy of the samples at `indices`, in their order."""
        return Samples(self.images[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples of one shape, whose labels are 0..classes-1."""

    name: str
    classes: int
    train: Samples
    test: Samples

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise DataError(f"{self.name}: classes = {self.classes}; there must be at least 1")
        shape, other = self.train.images.shape[1:], self.test.images.shape[1:]
        if shape != other or self.train.images.dtype != self.test.images.dtype:
            raise DataError(
                f"{self.name}: training images are {self.train.images.dtype} {list(shape)} but test images "
                f"{self.test.images.dtype} {list(other)}; they must be alike"
            )
        for split, samples in (("training", self.train), ("test", self.test)):
            with naming(f"{self.name}, {split} samples"):
                _check_values(samples, self.classes)


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Images as [n, c, h, w], whichever of four layouts they came in.

    [n, h, w] is one channel. In four dimensions the channel axis is the second if that is at most 4 long, else the
    last if that is. [n, features] becomes [n, features, 1, 1], so that each feature is normalised on its own.
    """
    if images.ndim == 2:
        return images[:, :, None, None]
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        raise DataError(
            f"an array of shape {list(images.shape)} is not [n, features], [n, h, w] or [n, h, w] with channels"
        )
    if images.shape[1] <= CHANNELS_MAX:
        return images
    if images.shape[3] <= CHANNELS_MAX:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    raise DataError(
        f"in an array of shape {list(images.shape)} no axis can be the channels: neither the second nor the last is "
        f"at most {CHANNELS_MAX} long; return a gcpsl.data.Dataset of [n, c, h, w] from data.name = 'module:function'"
    )


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Says which file or array a DataError is about."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{source}: {error}") from None


def class_count(labels: IntArray) -> int:
    """One more than the largest label; refuses labels that can't be classes, naming the first."""
    wrong = np.flatnonzero((labels < 0) | (labels >= CLASSES_MAX))
    if wrong.size:
        label = int(labels[wrong[0]])
        raise DataError(
            f"label {label} in row {int(wrong[0])} is {'negative' if label < 0 else 'too large'}; "
            f"number the classes from 0, without gaps (at most {CLASSES_MAX} of them)"
        )
    return 1 + int(labels.max())


def check_labels(labels: IntArray, classes: int) -> None:
    """Refuses labels outside 0..classes-1, naming the first."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise DataError(
            f"label {int(labels[wrong[0]])} in row {int(wrong[0])} is out of range; labels must be 0 to {classes - 1}"
        )


def _check_values(samples: Samples, classes: int) -> None:
    if not len(samples):
        raise DataError("there are none; at least one is needed")
    check_labels(samples.labels, classes)
    # a sum in float64 is finite only if every float32 pixel is
    images = samples.images
    if images.dtype == np.float32 and not np.isfinite(images.sum(axis=(1, 2, 3), dtype=np.float64)).all():
        raise DataError("images hold NaN or infinity; every pixel must be a finite number")
