"""Batches on a device equal a slow twin that crops, flips and normalises one sample at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from gcpsl.data import Samples
from gcpsl.data.device import DeviceSamples

MEAN, STD = np.array([0.4, 0.5, 0.3]), np.array([0.2, 0.25, 0.3])


def some_samples(count: int = 20, dtype: DTypeLike = np.uint8, channels: int = 3) -> Samples:
    generator = np.random.default_rng(0)
    images: NDArray[Any] = generator.integers(0, 256, (count, channels, 7, 9)).astype(dtype)
    return Samples(images, generator.integers(0, 10, count))


def on_device(samples: Samples, last: bool = False, padding: int = 0, flip: bool = False) -> DeviceSamples:
    c = samples.images.shape[1]
    return DeviceSamples(samples, MEAN[:c], STD[:c], "cpu", last, padding, flip)


def slow_image(image: NDArray[Any], bits: int, padding: int, flip: bool) -> Tensor:
    """One sample: pad with zeros, cut at the offset that its bits name, flip, normalise."""
    scale = 255 if image.dtype == np.uint8 else 1
    channels, height, width = image.shape
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    down = (bits % 2**31) % (2 * padding + 1)
    across = (bits // 2**31 % 2**31) % (2 * padding + 1)
    cropped = padded[:, down : down + height, across : across + width]
    if flip and bits >= 2**63:
        cropped = cropped[:, :, ::-1]
    mean, std = MEAN[:channels, None, None], STD[:channels, None, None]
    return torch.from_numpy((cropped / scale - mean) / std)


@settings(deadline=None)
@given(
    padding=st.integers(0, 4),
    flip=st.booleans(),
    last=st.booleans(),
    floats=st.booleans(),
    channels=st.sampled_from([1, 3]),
    bits=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12),
    seed=st.integers(0, 100),
)
def test_a_batch_equals_its_samples_one_by_one(
    padding: int, flip: bool, last: bool, floats: bool, channels: int, bits: list[int], seed: int
) -> None:
    samples = some_samples(dtype=np.float32 if floats else np.uint8, channels=channels)
    indices = np.random.default_rng(seed).integers(0, len(samples), len(bits))
    bits_b = torch.from_numpy(np.array(bits, np.uint64).view(np.int64))
    batch = on_device(samples, last, padding, flip).batch(torch.from_numpy(indices), bits_b)
    expected = torch.stack(
        [slow_image(samples.images[i], b, padding, flip) for i, b in zip(indices, bits, strict=True)]
    )
    assert batch.dtype == torch.float32
    torch.testing.assert_close(batch, expected.float(), rtol=1e-5, atol=1e-4 if floats else 1e-5)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [0, 2])
def test_batches_have_the_memory_layout_that_was_asked(last: bool, padding: int) -> None:
    data = on_device(some_samples(), last, padding, flip=bool(padding))
    batch = data.batch(torch.arange(5), torch.arange(5) * 2**60)
    assert batch.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


@given(order=st.permutations(range(20)), cut=st.integers(1, 20), last=st.booleans())
@settings(deadline=None)
def test_a_sample_is_the_same_bits_whatever_else_is_in_the_batch(order: list[int], cut: int, last: bool) -> None:
    data = on_device(some_samples(), last, padding=2, flip=True)
    bits = torch.from_numpy(np.random.default_rng(1).integers(-(2**63), 2**63, 20))
    whole = data.batch(torch.arange(20), bits)
    chosen = torch.tensor(order[:cut])
    assert torch.equal(data.batch(chosen, bits[chosen]), whole[chosen])


def test_evaluation_is_not_augmented() -> None:
    samples = some_samples()
    augmenting = on_device(samples, padding=2, flip=True)
    assert torch.equal(augmenting.batch(torch.arange(20)), on_device(samples).batch(torch.arange(20)))


def test_every_crop_is_about_equally_likely_and_half_are_flipped() -> None:
    image = np.zeros((1, 1, 9, 9), np.uint8)
    image[0, 0, 4, 4:6] = (255, 1)
    data = DeviceSamples(Samples(image, np.zeros(1, np.int64)), np.zeros(1), np.ones(1), "cpu", False, 2, True)
    draws = 10_000
    bits = torch.from_numpy(np.random.default_rng(0).integers(-(2**63), 2**63, draws))
    batch = data.batch(torch.zeros(draws, dtype=torch.int64), bits)
    where, counts = np.unique(batch.reshape(draws, -1).argmax(dim=1).numpy(), return_counts=True)
    assert len(where) == 25
    assert np.abs(counts / draws - 1 / 25).max() < 0.01


def test_images_stay_bytes_and_labels_are_there() -> None:
    samples = some_samples()
    data = on_device(samples)
    assert len(data) == 20
    assert torch.equal(data.labels, torch.from_numpy(samples.labels))
    assert data._images.nbytes == samples.images.nbytes


def test_a_training_split_is_normalised_to_zero_mean_and_unit_deviation() -> None:
    from gcpsl.data.federation import channel_statistics

    samples = some_samples()
    batch = DeviceSamples(samples, *channel_statistics(samples.images)).batch(torch.arange(20))
    assert torch.allclose(batch.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(batch.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-5)
