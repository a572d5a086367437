"""The paper's execution overview, drawn: one workload over all clients, and a workload per cluster with fusion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gcpsl.report.canvas import Figure, Panel
from gcpsl.report.style import GRID, INK, MUTED, SERIES, SURFACE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLIENTS, BATCH, CLUSTERS = 64, 12, 4
EPOCH = 1.25
"""The width of an epoch of four clusters; one workload's takes four times as long."""
TIME_FROM, TIME_TO = 5.9, 11.1
LANES = (6.3, 4.6, 2.9, 1.2)


def overview() -> Figure:
    return Figure(
        "execution-overview",
        "Execution organisation",
        "GPSL runs one workload with batch size B over all clients, so only the few whose samples are drawn (filled) "
        "supply data in a round. GCPSL deals the clients to fixed clusters and runs a workload with the same B in "
        "each, side by side; their replicas are fused at barriers, where shorter workloads wait. Clients without data "
        "in a round receive the update all the same.",
        (Panel("GPSL: one workload", _gpsl), Panel("GCPSL: a workload per cluster", _gcpsl)),
        panel_in=(5.6, 3.9),
        legend=False,
    )


def _gpsl(axes: Axes) -> None:
    _frame(axes)
    _clients(axes, 0, CLIENTS, LANES[0] + 0.45, 8, SERIES[0], "o")
    _server(axes, 3.75, "server", SERIES[0])
    _lane(axes, 3.75, TIME_TO - TIME_FROM, 24, SERIES[0])
    _note(axes, (TIME_FROM + TIME_TO) / 2, 5.2, "one long epoch")
    _note(axes, 1.26, 0.15, "K clients, of which\nat most B supply data")


def _gcpsl(axes: Axes) -> None:
    _frame(axes)
    markers = ("o", "s", "^", "D")
    for n, y in enumerate(LANES):
        _clients(axes, n + 1, CLIENTS // CLUSTERS, y + 0.45, 8, SERIES[n], markers[n])
        _server(axes, y, f"replica {n + 1}", SERIES[n])
        for epoch in range(CLUSTERS):
            _lane(axes, y, EPOCH * (0.92 - 0.09 * ((n + epoch) % 3)), 6, SERIES[n], TIME_FROM + epoch * EPOCH * 1.04)
    for epoch in range(1, CLUSTERS + 1):
        x = TIME_FROM + epoch * EPOCH * 1.04 - 0.08
        axes.plot([x, x], [0.75, 7.0], color=INK, linewidth=2)
    _note(axes, (TIME_FROM + TIME_TO) / 2, 0.35, "fusion at every epoch's end")
    _note(axes, 1.26, 0.15, "N clusters, of which each\nhas at most B that supply")


def _frame(axes: Axes) -> None:
    axes.set(xlim=(-0.45, 11.5), ylim=(-0.7, 7.3))
    axes.set_axis_off()
    axes.annotate(
        "", (TIME_TO + 0.35, -0.15), (TIME_FROM - 0.1, -0.15), arrowprops={"arrowstyle": "->", "color": MUTED}
    )
    axes.text(TIME_TO + 0.3, -0.5, "time", ha="right", va="center", size=9, color=INK)


def _clients(axes: Axes, draw: int, count: int, top: float, columns: int, colour: str, marker: str) -> None:
    """Dots in rows, those that supply data filled."""
    active = np.isin(np.arange(count), np.random.default_rng(draw).choice(count, min(BATCH, count - 3), replace=False))
    places = np.arange(count)
    x, y = 0.36 * (places % columns), top - 0.68 * (places // columns) * (0.95 if count > 16 else 1)
    style: dict[str, Any] = {"marker": marker, "s": 34, "linewidths": 1.1, "edgecolors": colour}
    axes.scatter(x[~active], y[~active], facecolors=SURFACE, **style)
    axes.scatter(x[active], y[active], facecolors=colour, **style)


def _server(axes: Axes, y: float, name: str, colour: str) -> None:
    axes.annotate("", (3.95, y + 0.1), (2.85, y + 0.1), arrowprops={"arrowstyle": "<->", "color": MUTED})
    axes.text(3.38, y + 0.45, "cut", ha="center", va="center", size=8.5)
    axes.text(
        4.75,
        y + 0.1,
        f"{name}\nbatch B",
        ha="center",
        va="center",
        size=8.5,
        linespacing=1.25,
        bbox={"boxstyle": "round,pad=0.35", "facecolor": SURFACE, "edgecolor": colour, "linewidth": 1.6},
    )


def _lane(axes: Axes, y: float, width: float, rounds: int, colour: str, start: float = TIME_FROM) -> None:
    """An epoch's rounds, a block each."""
    each = width / rounds
    axes.bar(
        start + each * (np.arange(rounds) + 0.5),
        0.62,
        each * 0.78,
        bottom=y - 0.2,
        color=colour,
        edgecolor=GRID,
        linewidth=0,
    )


def _note(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", size=9, color=INK)
