"""Maps of clients: who took part in which round, and who holds which class, cluster by cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcpsl.fleet import IntArray
from gcpsl.plugins import optional
from gcpsl.report.canvas import Figure, Missing, Panel
from gcpsl.report.collect import Group
from gcpsl.report.fleet import Drawn, drawn
from gcpsl.report.sections import Line, Section
from gcpsl.report.style import HEAT, HEAT_OPACITY_MAX, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAPS_MAX = 4
ROUNDS_MAX = 120
CELLS_NAMED_MAX = 170
TICKS_MAX = 10


def maps(sections: Iterable[Section], moved: Sequence[str]) -> list[Figure | Missing]:
    """Of up to four rows, from the one with the least participation to the one with the most."""
    picked = _picked(list(sections))
    found = [(line, drawn(line.group.runs[0], moved)) for line in picked]
    seen = _different([(line, one) for line, one in found if isinstance(one, Drawn)])
    clustered = [(line, one) for line, one in seen if one.assignment is not None]
    takes_part, composition = ("participation-map", "Who took part when"), ("composition", "Who holds which class")
    undrawn = [
        Missing("maps", f"Clients of {_titled(line)}", f"needs the run's own data; {one}")
        for line, one in found
        if isinstance(one, str)
    ]
    return [
        _participation(*takes_part, seen) if seen else Missing(*takes_part, "no row's clients can be drawn"),
        _composition(*composition, clustered)
        if clustered
        else Missing(*composition, "no row with clusters can be drawn"),
        *undrawn,
    ]


def _picked(sections: Sequence[Section]) -> list[Line]:
    """Rows spread evenly over the participation that was measured, each config once."""
    lines: dict[str, Line] = {}
    for section in sections:
        for line in section.lines:
            lines.setdefault(line.group.key, line)
    ordered = sorted(lines.values(), key=lambda line: _participation_of(line.group))
    places = np.unique(np.linspace(0, len(ordered) - 1, MAPS_MAX).round().astype(int))
    return [ordered[place] for place in places]


def _different(seen: Sequence[tuple[Line, Drawn]]) -> list[tuple[Line, Drawn]]:
    """Without rows whose clients take part in the very same rounds."""
    kept: list[tuple[Line, Drawn]] = []
    for line, one in seen:
        if not any(np.array_equal(one.supplied, other.supplied) for _, other in kept):
            kept.append((line, one))
    return kept


def _participation_of(group: Group) -> float:
    return group.runs[0].summary.participation_ran


def _participation(name: str, title: str, seen: Sequence[tuple[Line, Drawn]]) -> Figure:
    panels = [
        Panel(
            f"{_titled(line)}: {100 * _participation_of(line.group):.0f}% supply data", partial(_draw_rounds, one=one)
        )
        for line, one in seen
    ]
    return Figure(
        name,
        title,
        f"Each client's rounds of the first epoch (its first {ROUNDS_MAX} rounds, if it has more), seed "
        f"{seen[0][1].run.seed}: a mark where the client supplied at least one sample. Clients stand by cluster, "
        "divided by lines, and within one by their number of samples, the most on top.",
        tuple(panels),
        legend=False,
    )


def _titled(line: Line) -> str:
    """With the batch size, as rows of several studies stand side by side."""
    title = line.row.title
    return title if "B = " in title else f"{title}, B = {line.row.config.schedule.batch_size}"


def _draw_rounds(axes: Axes, one: Drawn) -> None:
    rounds = one.supplied[_order(one), :ROUNDS_MAX] > 0
    clients, count = rounds.shape
    axes.imshow(
        rounds, aspect="auto", cmap=_opacity(), vmin=0, vmax=1, interpolation="nearest", extent=(0, count, clients, 0)
    )
    for edge in _edges(one):
        axes.axhline(edge, color=INK, linewidth=1)
    whole = one.supplied.shape[1]
    axes.set(xlabel=f"round (of {whole:,})", ylabel="clients")
    axes.grid(visible=False)


def _composition(name: str, title: str, seen: Sequence[tuple[Line, Drawn]]) -> Figure:
    panels = []
    for line, one in seen:
        panels.append(Panel(f"{_titled(line)}: clients", partial(_draw_clients, one=one)))
        panels.append(Panel(f"{_titled(line)}: clusters", partial(_draw_clusters, one=one)))
    return Figure(
        name,
        title,
        f"On the left each client's samples by class (seed {seen[0][1].run.seed}), the stronger the more, the clusters "
        "divided by lines. On the right each cluster's share of each class in percent: equal columns mean that every "
        "cluster sees what the whole fleet holds.",
        tuple(panels),
        legend=False,
        panel_in=(4.6, 2.9),
    )


def _draw_clients(axes: Axes, one: Drawn) -> None:
    assert one.fleet.histograms is not None
    counts = one.fleet.histograms[_order(one, by_class=True)].T
    classes, clients = counts.shape
    axes.imshow(
        counts,
        aspect="auto",
        cmap=_opacity(),
        interpolation="nearest",
        extent=(0, clients, classes - 0.5, -0.5),
        vmin=0,
    )
    for edge in _edges(one):
        axes.axvline(edge, color=INK, linewidth=1)
    axes.set(xlabel=f"clients, by cluster and main class (at most {counts.max():,} samples)", ylabel="class")
    axes.set_yticks(range(0, classes, -(-classes // TICKS_MAX)))
    axes.grid(visible=False)


def _draw_clusters(axes: Axes, one: Drawn) -> None:
    assert one.fleet.histograms is not None
    assert one.assignment is not None
    clusters = int(one.assignment.max()) + 1
    sums = np.array([one.fleet.histograms[one.assignment == n].sum(axis=0) for n in range(clusters)])
    shares = (100 * sums / sums.sum(axis=1, keepdims=True)).T
    axes.imshow(shares, aspect="auto", cmap=_opacity(), interpolation="nearest", vmin=0)
    if shares.size <= CELLS_NAMED_MAX and shares.shape[0] <= 12:
        for (label, cluster), share in np.ndenumerate(shares):
            axes.text(cluster, label, f"{share:.0f}", ha="center", va="center", size=8, color=INK)
    axes.set(xlabel="cluster", ylabel="class")
    axes.set_xticks(range(clusters), [str(n) for n in range(clusters)])
    axes.set_yticks(range(0, shares.shape[0], -(-shares.shape[0] // TICKS_MAX)))
    axes.tick_params(length=0)
    axes.grid(visible=False)


def _order(one: Drawn, *, by_class: bool = False) -> IntArray:
    """Clients by cluster, and within one by their main class or by their size."""
    assert one.fleet.histograms is not None
    clusters = np.zeros(one.fleet.clients, np.int64) if one.assignment is None else one.assignment
    within = one.fleet.histograms.argmax(axis=1) if by_class else -one.fleet.counts
    return np.lexsort((-one.fleet.counts, within, clusters))


def _edges(one: Drawn) -> NDArray[np.int64]:
    """Where one cluster ends and the next begins."""
    if one.assignment is None:
        return np.array([], np.int64)
    return np.cumsum(np.bincount(one.assignment))[:-1]


def _opacity() -> Any:
    """From nothing to the colour, so that zero is the page itself, be it white or black."""
    colours = optional("matplotlib.colors", "report", "drawing")
    red, green, blue = colours.to_rgb(HEAT)
    faint, full = (red, green, blue, 0.0), (red, green, blue, HEAT_OPACITY_MAX)
    return colours.LinearSegmentedColormap.from_list("opacity", [faint, full])
