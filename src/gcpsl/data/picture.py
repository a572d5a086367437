"""A partition as a PNG: client sizes, and which client holds which class. Needs the `report` extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gcpsl import plugins
from gcpsl.data.show import PartitionSummary, binned_means, by_main_class, histograms
from gcpsl.errors import DataError
from gcpsl.fleet import Fleet

COLUMNS_MAX = 1024
BINS_MAX = 40
TICKS_MAX = 20


def save_picture(summary: PartitionSummary, fleet: Fleet, path: Path) -> None:
    """Writes the drawing to `path`, whose suffix says the format."""
    # a figure of its own, so that no display and no global state is touched
    figure = plugins.optional("matplotlib.figure", "report", "drawing a partition").Figure(
        figsize=(11, 4.6), layout="constrained"
    )
    sizes, heat = figure.subplots(1, 2, width_ratios=(1, 1.9))
    _draw_sizes(sizes, summary, fleet)
    _draw_heat(figure, heat, fleet)
    figure.suptitle(
        f"{summary.data}: {summary.training_samples} training samples of {summary.clients} clients\n"
        f"{summary.partition}, seed {summary.seed}",
        fontsize=11,
    )
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DataError(f"can't write the drawing to '{path}': {error}") from None


def _draw_sizes(axes: Any, summary: PartitionSummary, fleet: Fleet) -> None:
    low, high = int(fleet.counts.min()), int(fleet.counts.max())
    # whole numbers in each bin, or neighbouring bars would differ by rounding alone
    width = max(1, -(-(high - low + 1) // BINS_MAX))
    axes.hist(fleet.counts, bins=np.arange(low, high + width + 1, width) - 0.5, color="#3b6fb6")
    spread = summary.samples_per_client
    axes.axvline(spread.median, color="#c8553d", linewidth=1.5)
    axes.set_title(
        f"{low} min, {spread.median:g} median (line), {high} max, CV {spread.coefficient_of_variation:.2f}", fontsize=9
    )
    axes.set_xlabel("training samples of a client")
    axes.set_ylabel("clients")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_heat(figure: Any, axes: Any, fleet: Fleet) -> None:
    histograms_km = histograms(fleet)
    clients, classes = histograms_km.shape
    cells = np.ma.masked_equal(binned_means(histograms_km[by_main_class(histograms_km)], COLUMNS_MAX).T, 0)
    image = axes.imshow(
        cells, aspect="auto", cmap="YlGnBu", interpolation="nearest", extent=(0, clients, classes - 0.5, -0.5), vmin=0
    )
    axes.set_title("who holds which class (white: nothing)", fontsize=9)
    axes.set_xlabel("clients, ordered by their main class")
    axes.set_ylabel("class")
    axes.set_yticks(range(0, classes, -(-classes // TICKS_MAX)))
    unit = "samples of the class" if clients <= COLUMNS_MAX else "samples of the class (mean of neighbours)"
    figure.colorbar(image, ax=axes, label=unit)
