"""`gcpsl data show` counts right, fits 80 columns for any number of clients, and draws a picture."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from gcpsl.config import Config, PartitionConfig, override
from gcpsl.data import federate
from gcpsl.data.picture import save_picture
from gcpsl.data.show import PartitionSummary, Spread, binned_means, describe, render, size_bins, summarise
from gcpsl.errors import DataError
from gcpsl.fleet import Fleet


def some_fleet(clients: int, classes: int, seed: int = 0) -> Fleet:
    generator = np.random.default_rng(seed)
    histograms = generator.integers(0, 40, (clients, classes)) * (generator.random((clients, classes)) < 0.3)
    histograms[:, 0] += 1
    return Fleet(tuple(map(str, range(clients))), histograms.sum(axis=1), histograms)


def some_summary(fleet: Fleet) -> PartitionSummary:
    assert fleet.histograms is not None
    held = fleet.histograms > 0
    return PartitionSummary(
        data="toy",
        partition="IID",
        seed=0,
        input_shape=(3, 32, 32),
        classes=held.shape[1],
        training_samples=fleet.samples,
        validation_samples=0,
        test_samples=1,
        clients=fleet.clients,
        samples_per_client=Spread.of(fleet.counts),
        classes_per_client=Spread.of(held.sum(axis=1)),
        clients_per_class=tuple(held.sum(axis=0).tolist()),
    )


def lines(fleet: Fleet) -> list[str]:
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(render(some_summary(fleet), fleet))
    return capture.get().splitlines()


def test_the_summary_counts_what_the_partition_holds() -> None:
    config = override(Config(), "partition.kind=shards", "partition.clients=20", "schedule.workloads=2")
    data = federate(config)
    summary = summarise(config, data)
    table = [np.bincount(data.train.labels[data.owners == client], minlength=10) for client in range(20)]
    held = np.array(table) > 0
    assert summary.clients_per_class == tuple(held.sum(axis=0))
    assert summary.classes_per_client.max == held.sum(axis=1).max()
    assert summary.samples_per_client.min == data.fleet.counts.min()
    assert (summary.training_samples, summary.validation_samples, summary.test_samples) == (1294, 144, 359)
    assert summary.samples_per_client.max == data.fleet.counts.max()


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({}, "extended Dirichlet (gpsl), C = 2, alpha = 3"),
        ({"kind": "dirichlet", "alpha": 0.5}, "Dirichlet, alpha = 0.5"),
        ({"kind": "iid"}, "IID"),
        ({"kind": "shards"}, "2 label-sorted shards per client"),
        ({"kind": "file", "file": "who.csv"}, "column 'client' of who.csv"),
    ],
)
def test_a_partition_is_described_by_the_settings_it_uses(settings_: dict[str, Any], says: str) -> None:
    assert describe(PartitionConfig(**settings_)) == says


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(1, 3000), classes=st.integers(1, 120), seed=st.integers(0, 9))
def test_the_drawing_fits_80_columns_and_few_lines(clients: int, classes: int, seed: int) -> None:
    shown = lines(some_fleet(clients, classes, seed))
    assert max(map(len, shown)) <= 80
    assert len(shown) <= 45


def test_every_client_is_in_one_bar() -> None:
    for counts in (np.array([5]), np.array([1, 1, 2]), np.arange(1, 500), np.array([3, 900_000])):
        edges, clients = size_bins(counts)
        assert clients.sum() == len(counts)
        assert len(clients) <= 10
        assert (edges[0], edges[-1]) == (counts.min(), counts.max() + 1)


def test_a_class_that_a_client_holds_is_never_blank() -> None:
    """Two clients of one class each, the second with hardly anything: both marks are seen, and no others."""
    histograms = np.array([[1000, 0], [0, 1]])
    fleet = Fleet(("a", "b"), histograms.sum(axis=1), histograms)
    heat = [line.split("│")[1] for line in lines(fleet) if line.count("│") == 2]
    assert heat == ["█" * 32 + " " * 32, " " * 32 + "░" * 32]


@given(length=st.integers(1, 200), bins=st.integers(1, 70))
def test_binned_means_match_the_slow_twin(length: int, bins: int) -> None:
    values = np.random.default_rng(length).random((length, 3))
    groups = min(length, bins)
    edges = [group * length // groups for group in range(groups + 1)]
    slow = [values[start:stop].mean(axis=0) for start, stop in pairwise(edges)]
    assert np.allclose(binned_means(values, bins), slow)


@pytest.mark.parametrize("clients", [1, 40, 5000])
def test_a_picture_is_drawn(clients: int, tmp_path: Path) -> None:
    fleet = some_fleet(clients, 100)
    save_picture(some_summary(fleet), fleet, tmp_path / "partition.png")
    with Image.open(tmp_path / "partition.png") as image:
        assert image.size == (1650, 690)
        assert len(image.convert("RGB").getcolors(10**7) or []) > 50


def test_a_picture_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    fleet = some_fleet(3, 2)
    for path in (tmp_path / "absent" / "a.png", tmp_path / "a.nonsense"):
        with pytest.raises(DataError, match=r"can't write the drawing to"):
            save_picture(some_summary(fleet), fleet, path)
