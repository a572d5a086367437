"""How figures look: colours that every kind of colour vision tells apart, and dashes and markers that do so in grey.

The page replaces each colour by a variable, so that the same drawing is legible on white and on black.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INK, MUTED, GRID, SURFACE = "#1c2026", "#5d6673", "#dfe3e8", "#ffffff"
SERIES = ("#323fc8", "#d87700", "#00a877", "#b873c4", "#8b4a06", "#617eff", "#4d0781", "#515065")
"""To every kind of colour vision each stands out from white and the others; so do `page.css`'s dark ones from black."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES: tuple[Any, ...] = ("-", (0, (6, 1.6)), (0, (6, 1.6, 1.2, 1.6)), (0, (1.2, 1.2)), (0, (3, 1.4)), (0, (9, 2)))
HEAT = "#1f78b4"
"""Of maps, whose strength is its opacity, so that zero is whatever lies below."""
HEAT_OPACITY_MAX = 0.85

RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": SURFACE,
    "svg.fonttype": "none",
    "svg.hashsalt": "gcpsl",
}


@dataclass(frozen=True)
class Look:
    """What sets one row's line or point apart from the others'."""

    colour: str
    marker: str
    dash: Any

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": self.dash, "linewidth": 1.8}

    @property
    def points(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker, "markersize": 6, "mfc": SURFACE, "mew": 1.6}


LOOKS = 24
"""How many rows can differ."""


def look(index: int) -> Look:
    """Colours come round after eight, then with other markers and dashes, so that no two of `LOOKS` are alike."""
    again = index // len(SERIES)
    marker = MARKERS[(index + 3 * again) % len(MARKERS)]
    return Look(SERIES[index % len(SERIES)], marker, DASHES[index % len(DASHES)])
