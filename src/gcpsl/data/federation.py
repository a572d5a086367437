"""A config's data, ready to train on: split, dealt to clients, and measured for normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gcpsl.config import Config
from gcpsl.data.dataset import Dataset, ImageArray, Samples
from gcpsl.data.partitions import partition
from gcpsl.data.sources import load
from gcpsl.errors import ConfigError, DataError
from gcpsl.fleet import Fleet
from gcpsl.seeds import Purpose, stream

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

CHUNK_IMAGES = 256


@dataclass(frozen=True, eq=False)
class FederatedData:
    """`owners[i]` is the client of training sample i; `mean` and `std` are the training split's, per channel.

    The two are in the units of `pixel_scale` times the stored pixels: 0 to 1 for uint8 images.
    """

    train: Samples
    validation: Samples
    test: Samples
    owners: IntArray
    fleet: Fleet
    classes: int
    mean: FloatArray
    std: FloatArray

    @property
    def input_shape(self) -> tuple[int, int, int]:
        _, channels, height, width = self.train.images.shape
        return channels, height, width


def federate(config: Config, dataset: Dataset | None = None) -> FederatedData:
    """Loads the data unless `dataset` is given, holds out the validation split, and deals the rest to clients."""
    source = load(config.data) if dataset is None else dataset
    if not isinstance(source, Dataset):
        raise DataError(
            f"dataset is a {type(source).__name__}; it must be a gcpsl.data.Dataset "
            "(gcpsl.data.from_torch makes one of PyTorch datasets)"
        )
    _refuse_wide_padding(config, source)
    kept, held_out = _split(len(source.train), config.data.validation_fraction, config.seed)
    dealt = partition(config.partition, source.train.labels, source.classes, config.seed, kept)
    train = source.train.take(kept) if len(held_out) else source.train
    mean, std = channel_statistics(train.images)
    return FederatedData(
        train=train,
        validation=source.train.take(held_out),
        test=source.test,
        owners=dealt.owners,
        fleet=Fleet.from_owners(dealt.owners, train.labels, source.classes, dealt.ids),
        classes=source.classes,
        mean=mean,
        std=std,
    )


def pixel_scale(images: ImageArray) -> float:
    """What stored pixels are multiplied by before they are normalised: uint8 becomes 0 to 1, floats stay."""
    return 1 / 255 if images.dtype == np.uint8 else 1.0


def channel_statistics(images: ImageArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each channel, with memory for a few images at a time.

    A constant channel has a deviation of 1, so that normalising it gives zero.
    """
    samples, channels, height, width = images.shape
    # sums of squares lose their digits unless the data is near zero
    shift = images[:CHUNK_IMAGES].mean(axis=(0, 2, 3), dtype=np.float64)
    total, squares = np.zeros(channels), np.zeros(channels)
    for start in range(0, samples, CHUNK_IMAGES):
        chunk = images[start : start + CHUNK_IMAGES] - shift[:, None, None]
        total += chunk.sum(axis=(0, 2, 3))
        squares += np.square(chunk, out=chunk).sum(axis=(0, 2, 3))
    count = samples * height * width
    offset = total / count
    std = np.sqrt(np.maximum(squares / count - np.square(offset), 0))
    scale = pixel_scale(images)
    return (shift + offset) * scale, np.where(std > 0, std * scale, 1.0)


def _split(samples: int, fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """Rows kept for training and rows held out for validation, each in ascending order."""
    order = stream(seed, Purpose.VALIDATION_SPLIT).permutation(samples)
    count = round(fraction * samples)
    if count >= samples:
        raise ConfigError(
            f"data.validation_fraction = {fraction:g} leaves none of {samples} samples to train on; lower it"
        )
    return np.sort(order[count:]), np.sort(order[:count])


def _refuse_wide_padding(config: Config, dataset: Dataset) -> None:
    height, width = dataset.train.images.shape[2:]
    if config.data.crop_padding >= min(height, width):
        raise ConfigError(
            f"data.crop_padding = {config.data.crop_padding} is as wide as the {height}x{width} images, so a crop "
            f"could be all padding; set it below {min(height, width)}"
        )
