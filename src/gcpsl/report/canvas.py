"""From a figure's panels to pictures: beside each other, and below each other for a narrow screen.

Knows matplotlib, which only the `report` extra brings, and nothing of runs.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gcpsl.plugins import optional
from gcpsl.report.style import RC

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PNG_DPI = 160
PANEL_IN = (4.4, 3.2)
LEGEND_ROW_IN = 0.23
CHARS_PER_IN, TITLE_CHARS_PER_IN = 13, 9
LEGEND_CHARS_MAX = 32


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `draw` puts labels on what the legend names."""

    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True)
class Figure:
    """What is drawn, and in words what it shows."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 2
    panel_in: tuple[float, float] = PANEL_IN
    legend: bool = True


@dataclass(frozen=True)
class Missing:
    """A figure that can't be drawn, and why, or what it needs."""

    name: str
    title: str
    why: str


@dataclass(frozen=True)
class Picture:
    """A figure's files, and the form of it for narrow screens."""

    figure: Figure
    png: bytes
    svg: str
    narrow_svg: str


def available() -> None:
    """Raises, with the extra to install, where nothing can be drawn."""
    optional("matplotlib.figure", "report", "drawing the report's figures")


def picture(figure: Figure) -> Picture:
    with optional("matplotlib", "report", "drawing the report's figures").rc_context(RC):
        wide = _canvas(figure, figure.columns)
        narrow = _canvas(figure, 1) if figure.columns > 1 and len(figure.panels) > 1 else wide
        return Picture(figure, _png(wide), _svg(wide), _svg(narrow))


def _canvas(figure: Figure, columns: int) -> Canvas:
    columns = min(columns, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    width, height = figure.panel_in[0] * columns, figure.panel_in[1] * rows
    # a figure of its own, so that no display and no global state is touched
    canvas: Canvas = optional("matplotlib.figure", "report", "drawing").Figure(
        figsize=(width, height), layout="constrained"
    )
    canvas.get_layout_engine().set(h_pad=0.08, hspace=0.05, wspace=0.04)  # type: ignore[union-attr, call-arg]
    grid = canvas.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(grid, figure.panels, strict=False):
        axes.set_title(textwrap.fill(panel.title, int(figure.panel_in[0] * TITLE_CHARS_PER_IN)), loc="left")
        panel.draw(axes)
    for axes in grid[len(figure.panels) :]:
        axes.set_axis_off()
    if figure.legend:
        _add_legend(canvas, grid, width, height)
    return canvas


def _add_legend(canvas: Canvas, grid: Any, width: float, height: float) -> None:
    """One for all panels, below them, in as many columns as fit."""
    named: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if not named:
        return
    labels = [textwrap.fill(label, LEGEND_CHARS_MAX) for label in named]
    longest = max(len(line) for label in labels for line in label.splitlines()) + 6
    columns = max(1, min(len(labels), int(width * CHARS_PER_IN / longest)))
    lines = -(-len(labels) // columns) + sum(label.count("\n") for label in labels) / columns
    canvas.set_figheight(height + LEGEND_ROW_IN * lines)
    canvas.legend(
        named.values(), labels, loc="outside lower center", ncols=columns, handlelength=3.2, columnspacing=1.6
    )


def _png(canvas: Canvas) -> bytes:
    out = io.BytesIO()
    canvas.savefig(out, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return out.getvalue()


def _svg(canvas: Canvas) -> str:
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
