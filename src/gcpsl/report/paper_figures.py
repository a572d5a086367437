"""The paper's figures from our runs, each from the section that has its rows, with what the paper prints beside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gcpsl.report.canvas import Figure, Missing, Panel
from gcpsl.report.curves import ROUNDS, SAMPLES, Against, Unit, draw_accuracy, unit_of
from gcpsl.report.points import Bar, Point, draw_bars, point, printed
from gcpsl.report.sections import Line, Section
from gcpsl.report.style import INK, MUTED, SERIES, SURFACE, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REGIMES_SHOWN = ("single-worker", "random", "size-balanced", "label-aware")
INFORMED = ("label-aware", "size-balanced")
COUNTS = (2, 4, 8, 16)
THOUSANDTH = 1e-3
"""The scale of measures that count thousands, to show what they count."""
TRADE_OFFS = (
    ("r85", "rounds to 85%", "rounds", THOUSANDTH),
    ("r88", "rounds to 88%", "rounds", THOUSANDTH),
    ("accuracy", "final accuracy", "test accuracy (%)", 1),
    ("inactivity", "inactivity", "clients without data (%)", 1),
)
MINUTES = (Unit("h", 60, 120), Unit("min", 1, 2), Unit("s", 1 / 60))
OFFSET = 1.035
"""By how much points of two rules are moved apart on the logarithmic axis of N, so that equal ones are both seen."""


def paper_figures(sections: Sequence[Section]) -> list[Figure | Missing]:
    found = {section.study.name: section for section in sections}
    counts, real, capacity = (found.get(name) for name in ("cluster-count", "real-execution", "capacity"))
    return [
        operating_points(real),
        cluster_count_curves(counts),
        cluster_count_trade_off(counts),
        concurrent_and_sequential(real),
        capacity_boundary(capacity),
    ]


def operating_points(section: Section | None) -> Figure | Missing:
    """t85 against participation, one panel ours and one the paper's."""
    name, title = "operating-points", "Operating points"
    lines = section.named(*REGIMES_SHOWN) if section else ()
    places = {line.row.name: (point(line, "participation"), point(line, "t85")) for line in lines}
    shown = [line for line in lines if all(places[line.row.name])]
    if section is None or not shown:
        return Missing(name, title, f"needs runs of real-execution that reach 85%: {', '.join(REGIMES_SHOWN)}")
    unit = unit_of(max(time.mean for _, time in places.values() if time), MINUTES)
    panels = [Panel("Measured here", partial(_draw_operating, lines=shown, unit=unit))]
    if section.compared:
        panels.append(Panel("Printed in the paper (four H100)", partial(_draw_printed, section=section, lines=shown)))
    return Figure(
        name,
        title,
        "Time to 85% validation accuracy against direct data participation, of one workload and of the three fixed "
        "assignments: further left and higher is better. Points are means over the seeds, whiskers one standard "
        "deviation.",
        tuple(panels),
        panel_in=(4.6, 3.4),
    )


def _draw_operating(axes: Axes, lines: Sequence[Line], unit: Unit) -> None:
    for line in lines:
        share, time = point(line, "participation"), point(line, "t85")
        assert share is not None
        assert time is not None
        seen = look(REGIMES_SHOWN.index(line.row.name))
        place, spread = (time.mean / unit.scale, share.mean), (share.sd, time.sd / unit.scale)
        axes.errorbar(*place, *spread, color=seen.colour, fmt="none", capsize=3, elinewidth=1.3)
        axes.plot(*place, linestyle="none", label=line.row.title, **seen.points)
    _name_operating(axes, f"time to 85% ({unit.name})")


def _draw_printed(axes: Axes, section: Section, lines: Sequence[Line]) -> None:
    for line in lines:
        share, time = (printed(section, line.row.name, name) for name in ("participation", "t85"))
        if share is not None and time is not None:
            axes.plot(
                time, share, linestyle="none", label=line.row.title, **look(REGIMES_SHOWN.index(line.row.name)).points
            )
    _name_operating(axes, "time to 85% (min)")


def _name_operating(axes: Axes, heading: str) -> None:
    axes.set(xlabel=heading, ylabel="direct participation (%)", ylim=(0, 100))
    axes.set_xlim(0, axes.get_xlim()[1] * 1.08)


def cluster_count_curves(section: Section | None) -> Figure | Missing:
    """The paper's four panels: N = 4 above, 8 below, rounds on the left, samples on the right."""
    name, title = "accuracy-rounds-samples", "Accuracy at N = 4 and N = 8"
    by_count = {n: section.named("gpsl", *(f"{rule}-{n}" for rule in INFORMED)) for n in (4, 8)} if section else {}
    drawn = {n: lines for n, lines in by_count.items() if any(line.row.name != "gpsl" for line in lines)}
    if not drawn:
        return Missing(name, title, "needs runs of cluster-count: gpsl, and label-aware or size-balanced at N = 4 or 8")
    panels = [
        Panel(
            f"({letter}) N = {n}, {against.title}",
            partial(_draw_shared_styles, lines=lines, n=n, against=against),
        )
        for (n, lines, against), letter in zip(
            ((n, lines, against) for n, lines in drawn.items() for against in (ROUNDS, SAMPLES)), "abcd", strict=False
        )
    ]
    return Figure(
        name,
        title,
        "Test accuracy of GPSL and of size-balanced and label-aware GCPSL, against schedule-accounted rounds on the "
        "left and samples processed on the right. Lines are means over the seeds, bands one standard deviation to "
        "either side; the axis begins near the lowest final accuracy.",
        tuple(panels),
    )


def _draw_shared_styles(axes: Axes, lines: Sequence[Line], n: int, against: Against) -> None:
    places = {"gpsl": 0, f"size-balanced-{n}": 1, f"label-aware-{n}": 2}
    styles = [places[line.row.name] for line in lines]
    draw_accuracy(axes, lines, against, styles, may_be_logarithmic=False)
    for drawn, line in zip(axes.get_lines(), lines, strict=True):
        drawn.set_label(line.row.title.partition(",")[0])


def cluster_count_trade_off(section: Section | None) -> Figure | Missing:
    """Rounds to both targets, final accuracy and inactivity over N."""
    name, title = "cluster-count-trade-off", "What more clusters give and take"
    rows = [f"{rule}-{n}" for rule in INFORMED for n in COUNTS]
    if section is None or len(section.named(*rows)) < 2:
        return Missing(name, title, "needs runs of cluster-count at two or more N: label-aware and size-balanced")
    beside = ", and small empty marks on dotted lines what the paper prints" if section.compared else ""
    return Figure(
        name,
        title,
        "Rounds to the two targets, final accuracy and direct-data inactivity over the number of clusters. Whiskers "
        f"are one standard deviation over the seeds{beside}; the level line is GPSL. Points of the rules are moved "
        "apart a little, so that equal ones are both seen.",
        tuple(
            Panel(f"({letter}) {title}", partial(_draw_trade_off, section=section, name=column, unit=unit, scale=scale))
            for letter, (column, title, unit, scale) in zip("abcd", TRADE_OFFS, strict=True)
        ),
    )


def _draw_trade_off(axes: Axes, section: Section, name: str, unit: str, scale: float) -> None:
    for index, rule in enumerate((*INFORMED, "random")):
        lines = {n: line for n in COUNTS if (line := section.line(f"{rule}-{n}")) is not None}
        found = {n: at for n, line in lines.items() if (at := point(line, name, scale)) is not None}
        said = {n: value for n in lines if (value := printed(section, f"{rule}-{n}", name, scale)) is not None}
        _draw_rule(axes, index, rule, found, said)
    gpsl = section.line("gpsl")
    level = point(gpsl, name, scale) if gpsl else None
    if level:
        axes.axhline(level.mean, color=INK, linewidth=1.2, label="GPSL")
    axes.set_xscale("log", base=2)
    axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
    axes.minorticks_off()
    axes.set_xlim(1.7, 19)
    axes.set(xlabel="clusters N", ylabel=unit)
    axes.yaxis.set_major_formatter("{x:,.10g}")
    if name != "accuracy":
        axes.set_ylim(0, None)


def _draw_rule(axes: Axes, index: int, rule: str, found: dict[int, Point], said: dict[int, float]) -> None:
    """Ours, and fainter what the paper prints."""
    seen, aside = look(index), OFFSET ** (1 - index)
    if found:
        places = [n * aside for n in found]
        means, deviations = [at.mean for at in found.values()], [at.sd for at in found.values()]
        axes.errorbar(places, means, yerr=deviations, color=seen.colour, fmt="none", capsize=3, elinewidth=1.3)
        axes.plot(places, means, label=rule, **(seen.line | seen.points))
    if said:
        axes.plot(
            [n * aside for n in said],
            list(said.values()),
            label=f"{rule}, paper",
            color=MUTED,
            linestyle=(0, (1, 2)),
            linewidth=1.1,
            marker=seen.marker,
            markersize=4,
            mfc=SURFACE,
            mew=0.9,
        )


def concurrent_and_sequential(section: Section | None) -> Figure | Missing:
    """The same workloads side by side and one after another: time, worker-minutes, and rounds of the schedule."""
    name, title = "concurrent-sequential", "Concurrent against sequential execution"
    lines = section.named("label-aware", "sequential") if section else ()
    if section is None or len(lines) < 2 or not any(point(line, "t85") for line in lines):
        return Missing(name, title, "needs runs of real-execution that reach 85%: label-aware and sequential")
    longest = max(at.mean for line in lines if (at := point(line, "t85")))
    unit = unit_of(longest, MINUTES)
    columns = (
        ("t85", "time", f"time to 85% ({unit.name})", unit.scale),
        ("worker_minutes_85", "GPU time", f"GPU time to 85% ({unit.name})", unit.scale),
        ("r85", "rounds", "schedule-accounted rounds to 85%", THOUSANDTH),
    )
    panels = []
    for letter, (column, what, heading, scale) in zip("abc", columns, strict=True):
        names = zip(("concurrent", "sequential"), ("", "///"), lines, strict=True)
        bars = [
            Bar(label, SERIES[i], hatch, point(line, column, scale)) for i, (label, hatch, line) in enumerate(names)
        ]
        said = [printed(section, line.row.name, column) for line in lines]
        draw = partial(draw_bars, bars=bars, unit=heading, digits=0 if scale == THOUSANDTH else 2)
        panels.append(Panel(f"({letter}) {what}: {_ratio(bars, *said)}", draw))
    return Figure(
        name,
        title,
        "The same label-aware workloads side by side and one after another, to 85% validation accuracy. Bars are means "
        "over the seeds, whiskers one standard deviation. Rounds are accounted by schedule, as if every workload had "
        "a device of its own; time is what this machine took. Titles say how much longer one after another takes.",
        tuple(panels),
        3,
        (3.7, 2.2),
        legend=False,
    )


def _ratio(bars: Sequence[Bar], concurrent: float | None, sequential: float | None) -> str:
    first, second = (bar.ours for bar in bars)
    ours = f"{second.mean / first.mean:.2f}×" if first and second and first.mean else "–"
    return f"{ours} (paper {sequential / concurrent:.2f}×)" if concurrent and sequential else ours


def capacity_boundary(section: Section | None) -> Figure | Missing:
    """Rounds and memory of larger batches beside clusters'."""
    name, title = "capacity-boundary", "Larger batches instead of clusters"
    if section is None or len(section.lines) < 2:
        return Missing(name, title, "needs runs of two or more rows of capacity, such as size-balanced-4 and gpsl-512")
    columns = (
        ("r85", "rounds to 85%", "schedule-accounted rounds", THOUSANDTH),
        ("memory_mib", "memory", "peak memory per workload (MiB)", 1),
    )
    panels = tuple(
        Panel(
            f"({letter}) {title}",
            partial(draw_bars, bars=_capacity_bars(section, column, scale), unit=unit, digits=0),
        )
        for letter, (column, title, unit, scale) in zip("ab", columns, strict=True)
    )
    beside = "; the paper's values are the thin empty ones" if section.compared else ""
    return Figure(
        name,
        title,
        "Schedule-accounted rounds to 85% test accuracy, and the most memory that a workload held. Bars are means over "
        f"the seeds, whiskers one standard deviation{beside}.",
        panels,
        panel_in=(4.6, 0.9 + 0.62 * len(section.lines)),
        legend=False,
    )


def _capacity_bars(section: Section, column: str, scale: float) -> list[Bar]:
    hatches = ("", "///", "...", "\\\\\\", "xx")
    return [
        Bar(
            line.row.title,
            SERIES[i % len(SERIES)],
            hatches[i % len(hatches)],
            point(line, column, scale),
            printed(section, line.row.name, column, scale),
        )
        for i, line in enumerate(section.lines)
    ]
