"""Lines over a run's epochs: accuracy against rounds, samples, payload and time, and drift. Means and SD bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gcpsl.records import EpochRecord
from gcpsl.report.canvas import Figure, Missing, Panel
from gcpsl.report.collect import Run
from gcpsl.report.sections import Line, Section
from gcpsl.report.style import LOOKS, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]
Payload = Literal["payload_simulator_bytes", "payload_real_bytes"]

FOCUS_POINTS = 11.5
"""How far below the lowest final accuracy an accuracy axis begins, as in the paper's figures."""
BAND_OPACITY, CROWDED_OPACITY, CROWD = 0.24, 0.12, 5
"""Bands are fainter where more than so many rows overlap."""
MARKED = 8
LOGARITHMIC_FROM = 3
"""How many times as long the longest row is as the shortest, for an axis on which both are seen."""


@dataclass(frozen=True)
class Unit:
    name: str
    scale: float
    least: float | None = None
    """From where on it is used; none is from one of it on."""


@dataclass(frozen=True)
class Against:
    """What an epoch adds on the x axis, and the units that it is shown in, the largest that fits."""

    heading: str
    title: str
    added: Callable[[Run, EpochRecord], float]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Curve:
    """A row's mean over its seeds, epoch by epoch."""

    x: FloatArray
    mean: FloatArray
    sd: FloatArray


ROUNDS = Against(
    "schedule-accounted rounds",
    "rounds",
    lambda _, record: record.schedule_rounds,
    (Unit("thousands", 1e3, 1e4), Unit("", 1)),
)
SAMPLES = Against(
    "samples processed",
    "samples",
    lambda run, _: run.summary.samples,
    (Unit("millions", 1e6), Unit("thousands", 1e3, 1e4), Unit("", 1)),
)
TIME = Against(
    "training time",
    "time",
    lambda _, record: record.epoch_s,
    (Unit("h", 3600, 7200), Unit("min", 60, 180), Unit("s", 1)),
)
BYTES = (Unit("TB", 1e12), Unit("GB", 1e9), Unit("MB", 1e6), Unit("kB", 1e3))


def payload_of(section: Section) -> Payload:
    """The counting that the section's own columns have: the simulator's, or the real execution's."""
    real = any(name.startswith("payload_real") for name in section.study.measures)
    return "payload_real_bytes" if real or split_name(section.lines) == "validation" else "payload_simulator_bytes"


def curves(section: Section) -> list[Figure | Missing]:
    """A section's accuracy and drift, unless it has more rows than can be told apart."""
    if len(section.lines) <= LOOKS:
        return [accuracy_against_all(section), drift(section)]
    why = f"{len(section.lines)} rows can't be told apart, only {LOOKS}; name fewer runs, or a study with --study"
    return [Missing(f"accuracy-{section.study.name}", f"Accuracy of {section.study.name}", why)]


def accuracy_against_all(section: Section) -> Figure:
    """Four panels, every row of a section a line."""
    payload = payload_of(section)
    counted = "simulator" if payload == "payload_simulator_bytes" else "real execution"
    by_payload = Against(f"logical payload, {counted}", "payload", lambda _, record: getattr(record, payload), BYTES)
    return Figure(
        f"accuracy-{section.study.name}",
        f"Accuracy of {section.study.name}",
        f"{split_name(section.lines).capitalize()} accuracy against rounds, samples, logical payload and training "
        "time, evaluated after every epoch. Lines are means over the seeds, bands one standard deviation to either "
        "side. The accuracy axis begins near the lowest final one; where rows differ much in length, the other axis is "
        "logarithmic."
        + ("" if section.study.timed else " Runs of this study may have shared a device, which lengthens their time."),
        tuple(
            Panel(f"({letter}) against {against.title}", partial(draw_accuracy, lines=section.lines, against=against))
            for letter, against in zip("abcd", (ROUNDS, SAMPLES, by_payload, TIME), strict=True)
        ),
    )


def drift(section: Section) -> Figure | Missing:
    """How far the replicas had moved apart at each epoch's last fusion."""
    name, title = f"drift-{section.study.name}", f"Replica drift in {section.study.name}"
    fused = [
        i for i, line in enumerate(section.lines) if any(any(record.drift) for record in line.group.runs[0].records)
    ]
    if not fused:
        return Missing(name, title, "needs runs with several workloads that are fused")
    caption = (
        "How far the replicas had moved apart when they were fused at an epoch's end: the weighted root mean square "
        "distance from their mean, relative to its norm. Lines are means over the seeds, bands one standard deviation."
    )
    return Figure(
        name, title, caption, (Panel("", partial(_draw_drift, lines=section.lines, fused=fused)),), 1, (5.6, 3.4)
    )


def _draw_drift(axes: Axes, lines: Sequence[Line], fused: Sequence[int]) -> None:
    for i in fused:
        curve = _curve(lines[i].group.runs, lambda *_: 1, lambda record: record.drift[-1] if record.drift else 0)
        _plot(axes, curve, i, lines[i].row.title, crowded=len(fused) > CROWD)
    axes.set(xlabel="epoch", ylabel="drift relative to the model's norm", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def draw_accuracy(
    axes: Axes,
    lines: Sequence[Line],
    against: Against,
    styles: Sequence[int] | None = None,
    *,
    may_be_logarithmic: bool = True,
) -> None:
    """Every row a line, in the style of its place or of `styles`."""
    split = split_name(lines)
    read = partial(_accuracy, split=split)
    curves = [_curve(line.group.runs, against.added, read) for line in lines]
    unit = unit_of(max(curve.x[-1] for curve in curves), against.units)
    for i, (line, curve) in enumerate(zip(lines, curves, strict=True)):
        scaled = Curve(curve.x / unit.scale, curve.mean, curve.sd)
        style = i if styles is None else styles[i]
        _plot(axes, scaled, style, line.row.title, crowded=len(lines) > CROWD)
    finals = [curve.mean[-1] for curve in curves]
    highest = max(float((curve.mean + curve.sd).max()) for curve in curves)
    lowest = max(0.0, min(finals) - FOCUS_POINTS)
    axes.set_ylim(lowest, min(100.5, highest + 1))
    ends = [float(curve.x[-1]) for curve in curves]
    if may_be_logarithmic and max(ends) > LOGARITHMIC_FROM * min(ends):
        seen_from = min(float(curve.x[np.argmax(curve.mean >= lowest)]) for curve in curves)
        _logarithmic(axes, 0.85 * seen_from / unit.scale, 1.1 * max(ends) / unit.scale)
    else:
        axes.set_xlim(0, None)
    axes.set(
        xlabel=f"{against.heading} ({unit.name})" if unit.name else against.heading, ylabel=f"{split} accuracy (%)"
    )
    axes.xaxis.set_major_formatter("{x:,.10g}")


def _logarithmic(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.minorticks_off()


def split_name(lines: Sequence[Line]) -> str:
    """The split that the rows' targets are on; test, where they differ."""
    held_out = all(line.group.runs[0].records[-1].validation_accuracy is not None for line in lines)
    on_validation = all(line.row.config.run.target_split == "validation" for line in lines)
    return "validation" if held_out and on_validation else "test"


def _accuracy(record: EpochRecord, split: str) -> float:
    value: float = getattr(record, f"{split}_accuracy")
    return value


def _curve(
    runs: Sequence[Run], added: Callable[[Run, EpochRecord], float], read: Callable[[EpochRecord], float]
) -> Curve:
    """Seeds' epochs are averaged as they come; their x, which may differ a little, too."""
    epochs = min(len(run.records) for run in runs)
    steps = [[added(run, record) for record in run.records[:epochs]] for run in runs]
    values = np.array([[read(record) for record in run.records[:epochs]] for run in runs])
    sd = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(epochs)
    return Curve(np.cumsum(steps, axis=1).mean(axis=0), values.mean(axis=0), sd)


def _plot(axes: Axes, curve: Curve, style: int, label: str, *, crowded: bool) -> None:
    seen = look(style)
    every = max(1, len(curve.x) // MARKED)
    axes.plot(curve.x, curve.mean, label=label, markevery=(style % every, every), **seen.line, **_small(seen.points))
    if curve.sd.any():
        opacity = CROWDED_OPACITY if crowded else BAND_OPACITY
        band = (curve.mean - curve.sd, curve.mean + curve.sd)
        axes.fill_between(curve.x, *band, color=seen.colour, alpha=opacity, linewidth=0)


def _small(points: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in points.items() if key != "color"} | {"markersize": 4.5, "mew": 1.2}


def unit_of(highest: float, units: Sequence[Unit]) -> Unit:
    """The first that values of this size are shown in; the last, if they are smaller than all."""
    return next((unit for unit in units if highest >= (unit.least or unit.scale)), units[-1])
