"""`gcpsl data show`: a partition in numbers, and drawn with characters in 80 columns.

Looks at a fleet's counts and histograms only; `picture.py` draws the same as an image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcpsl.config import Config, PartitionConfig
from gcpsl.data.federation import FederatedData
from gcpsl.fleet import Fleet

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

SIZE_BINS = 10
BAR_COLUMNS = 48
HEAT_COLUMNS = 64
HEAT_ROWS = 20
SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Spread:
    """Smallest, middle, largest, and the standard deviation over the mean."""

    min: float
    median: float
    max: float
    coefficient_of_variation: float

    @classmethod
    def of(cls, values: IntArray) -> Spread:
        return cls(
            float(values.min()), float(np.median(values)), float(values.max()), float(values.std() / values.mean())
        )


@dataclass(frozen=True)
class PartitionSummary:
    """What `gcpsl data show` prints, and its JSON by field name."""

    data: str
    partition: str
    seed: int
    input_shape: tuple[int, int, int]
    classes: int
    training_samples: int
    validation_samples: int
    test_samples: int
    clients: int
    samples_per_client: Spread
    classes_per_client: Spread
    clients_per_class: tuple[int, ...]


def summarise(config: Config, data: FederatedData) -> PartitionSummary:
    """The partition of `data`, which `config` made, in numbers."""
    held_km = histograms(data.fleet) > 0
    return PartitionSummary(
        data=config.data.name,
        partition=describe(config.partition),
        seed=config.seed,
        input_shape=data.input_shape,
        classes=data.classes,
        training_samples=len(data.train),
        validation_samples=len(data.validation),
        test_samples=len(data.test),
        clients=data.fleet.clients,
        samples_per_client=Spread.of(data.fleet.counts),
        classes_per_client=Spread.of(held_km.sum(axis=1)),
        clients_per_class=tuple(int(holders) for holders in held_km.sum(axis=0)),
    )


def describe(config: PartitionConfig) -> str:
    """The partition's rule with the settings that it uses."""
    match config.kind:
        case "extended_dirichlet":
            return f"extended Dirichlet ({config.variant}), C = {config.classes_per_client}, alpha = {config.alpha:g}"
        case "dirichlet":
            return f"Dirichlet, alpha = {config.alpha:g}"
        case "shards":
            return f"{config.shards_per_client} label-sorted shards per client"
        case "file":
            return f"column '{config.column}' of {config.file}"
        case _:
            return "IID"


def render(summary: PartitionSummary, fleet: Fleet) -> RenderableType:
    """The summary as a table, client sizes as bars, and who holds which class as shades."""
    return Group(
        _table(summary),
        Text("\nClients by number of samples", style="bold"),
        _size_bars(fleet.counts),
        Text("\nClasses (down) by client (across, ordered by their main class)", style="bold"),
        _heat(histograms(fleet)),
    )


def histograms(fleet: Fleet) -> IntArray:
    """The fleet's class histograms, which a fleet made from labels always has."""
    assert fleet.histograms is not None
    return fleet.histograms


def by_main_class(histograms_km: IntArray) -> IntArray:
    """Clients in order of the class that they hold most of, purest first."""
    share = histograms_km.max(axis=1) / histograms_km.sum(axis=1)
    return np.lexsort((-share, histograms_km.argmax(axis=1)))


def binned_means(values: NDArray[Any], bins: int) -> FloatArray:
    """Rows averaged in at most `bins` near-equal groups of neighbours."""
    starts = _starts(len(values), bins)
    sizes = np.diff(starts, append=len(values))
    means: FloatArray = np.add.reduceat(values, starts, axis=0) / sizes[:, None]
    return means


def size_bins(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Edges of at most ten near-equal ranges of whole numbers, upper ones excluded, and the clients in each."""
    low, high = int(counts.min()), int(counts.max()) + 1
    edges = np.unique(np.linspace(low, high, min(SIZE_BINS, high - low) + 1).round().astype(np.int64))
    return edges, np.histogram(counts, edges)[0]


def _starts(length: int, bins: int) -> IntArray:
    groups = min(length, bins)
    return np.arange(groups, dtype=np.int64) * length // groups


def _table(summary: PartitionSummary) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    channels, height, width = summary.input_shape
    table.add_row("data", f"{summary.data}: {summary.classes} classes, images {channels} x {height} x {width}")
    table.add_row(
        "samples",
        f"{summary.training_samples} training, {summary.validation_samples} validation, {summary.test_samples} test",
    )
    table.add_row("partition", f"{summary.partition}, seed {summary.seed}")
    table.add_row("clients", str(summary.clients))
    table.add_row("samples per client", _spread(summary.samples_per_client))
    table.add_row("classes per client", _spread(summary.classes_per_client))
    table.add_row("clients per class", _spread(Spread.of(np.array(summary.clients_per_class))))
    return table


def _spread(spread: Spread) -> str:
    return f"{spread.min:g} min, {spread.median:g} median, {spread.max:g} max, CV {spread.coefficient_of_variation:.2f}"


def _size_bars(counts: IntArray) -> Text:
    edges, clients = size_bins(counts)
    last = edges[1:] - 1
    names = [f"{low}" if low == high else f"{low}-{high}" for low, high in zip(edges[:-1], last, strict=True)]
    width = max(map(len, names))
    lines = []
    for name, count in zip(names, clients, strict=True):
        # a client too few to see still has a sliver
        bar = "█" * round(BAR_COLUMNS * count / clients.max()) or ("▏" if count else "")
        lines.append(f"{name:>{width}} │{bar} {count}")
    return Text("\n".join(lines), no_wrap=True)


def _heat(histograms_km: IntArray) -> Text:
    """Shades grow with the samples of a class that a client (or the mean of neighbours) holds."""
    classes = histograms_km.shape[1]
    by_client = binned_means(histograms_km[by_main_class(histograms_km)], HEAT_COLUMNS)
    cells = binned_means(by_client.T, HEAT_ROWS)
    shades = np.ceil(cells / cells.max() * (len(SHADES) - 1)).astype(np.int64)
    shades = np.repeat(shades, HEAT_COLUMNS // shades.shape[1], axis=1)
    starts = _starts(classes, HEAT_ROWS)
    width = len(str(classes - 1))
    lines = [
        f"{start:>{width}} │" + "".join(SHADES[shade] for shade in row) + "│"
        for start, row in zip(starts, shades, strict=True)
    ]
    clients = len(histograms_km) / shades.shape[1]
    scale = f"1 client is {round(1 / clients)} wide" if clients <= 1 else f"{clients:.4g} clients share a column"
    lines.append(f"{'':>{width}}  {scale}; {SHADES[-1]} is up to {cells.max():.3g} samples of a class per client")
    return Text("\n".join(lines), no_wrap=True)
