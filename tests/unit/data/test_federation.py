"""A config's data is split, dealt and measured, the same way every time."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from gcpsl.config import Config, load, override
from gcpsl.data import Dataset, Samples, federate
from gcpsl.data.federation import channel_statistics
from gcpsl.errors import ConfigError, DataError


def toy(samples: int = 1000, shape: tuple[int, int, int] = (3, 4, 5)) -> Dataset:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (samples, *shape), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = np.arange(samples) % 256, np.arange(samples) // 256
    part = Samples(images, np.arange(samples) % 10)
    return Dataset("toy", 10, part, part)


def rows(samples: Samples) -> NDArray[np.int64]:
    """Which original row each sample is."""
    return samples.images[:, 0, 0, 0].astype(np.int64) + 256 * samples.images[:, 0, 0, 1].astype(np.int64)


def test_the_default_is_digits_for_64_clients() -> None:
    data = federate(Config())
    assert (len(data.train), len(data.validation), len(data.test)) == (1294, 144, 359)
    assert (data.fleet.clients, data.classes, data.input_shape) == (64, 10, (1, 8, 8))
    assert data.fleet.samples == 1294


def test_training_and_validation_share_no_sample_and_lose_none() -> None:
    data = federate(override(Config(), "data.validation_fraction=0.25"), toy())
    kept, held_out = rows(data.train), rows(data.validation)
    assert len(held_out) == 250
    assert sorted([*kept, *held_out]) == list(range(1000))
    assert np.array_equal(data.train.labels, kept % 10)
    assert np.array_equal(data.validation.labels, held_out % 10)


def test_normalisation_knows_nothing_of_what_is_held_out() -> None:
    whole = toy(60)
    data = federate(
        override(Config(), "data.validation_fraction=0.5", "partition.kind=iid", "partition.clients=4"), whole
    )
    for images, agree in ((data.train.images, True), (whole.train.images, False)):
        scaled = images.astype(np.float64) / 255
        assert np.allclose(data.mean, scaled.mean(axis=(0, 2, 3)), rtol=1e-9) == agree
        assert np.allclose(data.std, scaled.std(axis=(0, 2, 3)), rtol=1e-9) == agree


def test_the_fleet_counts_what_its_clients_own() -> None:
    data = federate(Config(), toy())
    assert data.fleet.histograms is not None
    for client in range(data.fleet.clients):
        own = data.train.labels[data.owners == client]
        assert data.fleet.histograms[client].tolist() == np.bincount(own, minlength=10).tolist()


def test_the_seed_decides_the_split_and_nothing_else_does() -> None:
    first, again = federate(Config(), toy()), federate(override(Config(), "optimizer.lr=0.5"), toy())
    other = federate(override(Config(), "seed=1"), toy())
    assert np.array_equal(rows(first.validation), rows(again.validation))
    assert np.array_equal(first.owners, again.owners)
    assert not np.array_equal(rows(first.validation), rows(other.validation))


def test_nothing_need_be_held_out() -> None:
    config = override(Config(), "data.validation_fraction=0", "partition.kind=iid", "partition.clients=1000")
    data = federate(config, toy())
    assert (len(data.train), len(data.validation)) == (1000, 0)
    assert data.fleet.counts.tolist() == [1] * 1000


def test_a_stranger_in_place_of_a_dataset_is_refused() -> None:
    with pytest.raises(DataError, match=r"dataset is a list; it must be a gcpsl.data.Dataset .*from_torch"):
        federate(Config(), cast(Dataset, [1, 2]))


def test_holding_everything_out_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.validation_fraction = 0.99 leaves none of 10 samples"):
        federate(override(Config(), "data.validation_fraction=0.99"), toy(10))


def test_a_padding_as_wide_as_the_image_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.crop_padding = 4 is as wide as the 4x5 images"):
        federate(override(Config(), "data.crop_padding=4"), toy())


@settings(max_examples=60, deadline=None)
@given(
    images=hnp.arrays(
        np.uint8,
        st.tuples(st.integers(1, 600), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
        elements=st.integers(0, 255),
    )
)
def test_statistics_are_those_of_all_pixels_scaled_to_one(images: NDArray[np.uint8]) -> None:
    mean, std = channel_statistics(images)
    scaled = images.astype(np.float64) / 255
    assert np.allclose(mean, scaled.mean(axis=(0, 2, 3)))
    expected = scaled.std(axis=(0, 2, 3))
    constant = images.min(axis=(0, 2, 3)) == images.max(axis=(0, 2, 3))
    assert np.allclose(std, np.where(constant, 1, expected), atol=1e-7)


def test_statistics_keep_their_digits_far_from_zero() -> None:
    images = (10_000 + np.random.default_rng(0).normal(size=(2000, 1, 8, 8))).astype(np.float32)
    mean, std = channel_statistics(images)
    assert mean[0] == pytest.approx(images.mean(dtype=np.float64), rel=1e-9)
    assert std[0] == pytest.approx(images.std(dtype=np.float64), rel=1e-6)


def test_statistics_take_little_memory() -> None:
    images = np.zeros((20_000, 3, 32, 32), np.uint8)
    tracemalloc.start()
    channel_statistics(images)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < images.nbytes / 3


def test_federating_imports_neither_torch_nor_scikit_learn() -> None:
    code = (
        "import sys; from gcpsl.config import load; from gcpsl.data import federate; federate(load());"
        "print([m for m in ('torch', 'sklearn', 'scipy', 'matplotlib', 'pyarrow') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


REAL = Path(os.environ.get("GCPSL_DATA", "/nonexistent"))


@pytest.mark.skipif(not (REAL / "cifar-10-batches-py").is_dir(), reason="GCPSL_DATA has no cifar-10-batches-py")
def test_cifar10_splits_as_the_paper_says() -> None:
    data = federate(load("paper-real"))
    assert (len(data.train), len(data.validation), len(data.test)) == (45_000, 5_000, 10_000)
    assert np.allclose(data.mean, [0.4914, 0.4822, 0.4465], atol=2e-3)
    assert np.allclose(data.std, [0.2470, 0.2435, 0.2616], atol=2e-3)
