"""A plan as tables for a terminal of 80 columns, as JSON, and as a plot. Adds nothing to the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gcpsl.errors import ConfigError
from gcpsl.metrics import SlotTimes
from gcpsl.planner import SINGLE, Plan, Row
from gcpsl.plugins import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GB, MB, MIB = 1e9, 1e6, 2**20
PLOT_FORMATS = (".png", ".svg", ".pdf")
# Okabe and Ito's palette, which every kind of colour vision tells apart; markers and dashes do so in grey
STYLES = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#E69F00", "v", "-"),
)

Cell = tuple[str, Callable[[Row], str]]


def to_json(plan: Plan) -> str:
    """The whole plan. Shares are fractions, payloads bytes per epoch; what is unknown is null.

    What concerns the slots' speeds is there only if they were asked about.
    """
    value = asdict(plan)
    for shown, row in zip(value["rows"], plan.rows, strict=True):
        shown["rounds_max"] = row.rounds_max
        shown["objective"] = {**asdict(row.objective), "total": row.objective.total} if row.objective else None
        if row.times is None:
            del shown["times"], shown["times_ignoring"]
    return json.dumps(value, indent=2)


def render(plan: Plan) -> RenderableType:
    """The plan for a person: clusters and schedule, participation and cost, what is disclosed, the advice."""
    known = f", {plan.classes} classes" if plan.classes else ", counts only"
    head = f"{plan.clients:,} clients, {plan.samples:,} samples{known}; batch size {plan.batch_size:,}"
    first = _table(plan, "Clusters and schedule", _schedule_columns(plan))
    second = _table(plan, "Participation, batches and cost per epoch", _cost_columns(plan))
    tables: list[RenderableType] = [first, "", second, ""]
    if plan.rows[0].times:
        tables += [_table(plan, "Time on these slots, and how long each waits", _SLOT_COLUMNS), ""]
    return Group(Text(head, style="bold"), "", *tables, *_legend(plan), "", *_advice(plan))


def _schedule_columns(plan: Plan) -> list[Cell]:
    columns: list[Cell] = [
        ("clients", lambda row: _span(row.clients_min, row.clients_max)),
        ("samples", lambda row: _span(row.samples_min, row.samples_max)),
        ("rounds", lambda row: _span(min(row.rounds), row.rounds_max)),
        ("ideal\nspeed-up", lambda row: f"{row.speedup:.2f}"),
        ("effi-\nciency", lambda row: f"{row.efficiency:.1%}"),
    ]
    if any(row.objective for row in plan.rows):
        columns.append(("J", lambda row: f"{row.objective.total:.4f}" if row.objective else ""))
    return columns


def _cost_columns(plan: Plan) -> list[Cell]:
    columns: list[Cell] = [
        ("partici-\npation", lambda row: f"{row.participation_system:.1%}"),
        ("without\nwaiting", lambda row: f"{row.participation_ran:.1%}"),
        ("bound", lambda row: f"{row.participation_bound:.1%}"),
    ]
    if plan.classes:
        columns.append(("batch\ndeviation", lambda row: f"{row.deviation:.3f}"))
    payloads = [row.payload for row in plan.rows if row.payload]
    if payloads:
        unit, scale = _unit(max(payload.simulator_bytes for payload in payloads))
        columns += [
            (f"simulator\n{unit}", lambda row: f"{row.payload.simulator_bytes / scale:,.1f}" if row.payload else ""),
            (f"real\n{unit}", lambda row: f"{row.payload.real_bytes / scale:,.1f}" if row.payload else ""),
            ("slot\nMiB", lambda row: _mib(row.memory_slot_bytes or 0)),
        ]
    return columns


def _epoch_time(times: SlotTimes | None) -> str:
    return f"{times.epoch_time:,.1f}" if times else ""


def _idle(times: SlotTimes | None) -> str:
    """Every slot's share, four to a line."""
    shares = [f"{share:4.0%}" for share in times.idle] if times else []
    return "\n".join(" ".join(shares[k : k + 4]) for k in range(0, len(shares), 4))


_SLOT_COLUMNS: list[Cell] = [
    ("epoch\ntime", lambda row: _epoch_time(row.times)),
    ("the slots\nwait", lambda row: _idle(row.times)),
    ("time, if\nignored", lambda row: _epoch_time(row.times_ignoring)),
    ("the slots\nwait", lambda row: _idle(row.times_ignoring)),
]


def _table(plan: Plan, title: str, columns: Sequence[Cell]) -> Table:
    advice = plan.recommendation
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("N", justify="right", vertical="top", no_wrap=True)
    table.add_column("rule", overflow="fold", max_width=16, min_width=15)
    for name, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in plan.rows:
        chosen = (row.workloads, row.rule) == (advice.workloads, advice.rule)
        cells = [show(row) for _, show in columns]
        table.add_row(
            f"{row.workloads:,}",
            row.rule + (" *" if chosen else ""),
            *cells,
            style="bold green" if chosen else None,
        )
    return table


def _legend(plan: Plan) -> list[RenderableType]:
    disclosed = {row.rule: row.discloses for row in plan.rows if row.rule != SINGLE}
    lines = [f"{rule} discloses: {text}" for rule, text in disclosed.items()]
    return [Text(line, style="dim") for line in [*lines, *plan.notes]]


def _advice(plan: Plan) -> list[RenderableType]:
    advice = plan.recommendation
    lines: list[RenderableType] = [
        Text.assemble((f"* N = {advice.workloads:,}, {advice.rule}", "bold green"), f", because {advice.reason}.")
    ]
    against = [f"Not N = {out.workloads:,}: {out.reason}." for out in advice.ruled_out]
    return [*lines, *(Padding(Text(line), (0, 0, 0, 2)) for line in against)]


def _mib(count: int) -> str:
    return f"{count / MIB:,.0f}" if count >= 10 * MIB else f"{count / MIB:.1f}"


def _unit(largest_bytes: float) -> tuple[str, float]:
    """The decimal unit in which the largest payload reads well."""
    return ("GB", GB) if largest_bytes >= GB else ("MB", MB)


def _span(low: int, high: int) -> str:
    first, last = _brief(low), _brief(high)
    return first if first == last else f"{first}-{last}"


def _brief(count: int) -> str:
    if count < 100_000:
        return f"{count:,}"
    return f"{count / 1e3:,.1f}k" if count < 1_000_000 else f"{count / 1e6:,.2f}M"


def save_plot(plan: Plan, path: str | Path) -> Path:
    """The plan's curves over N as a PNG, SVG or PDF, by the file's suffix."""
    path = Path(path)
    if path.suffix.lower() not in PLOT_FORMATS:
        raise ConfigError(f"can't draw '{path}': name a file that ends in {', '.join(PLOT_FORMATS)}")
    figure = optional("matplotlib.figure", "report", "the planner's plot").Figure(layout="constrained")
    panels = _panels(plan)
    figure.set_size_inches(10, 3.6 * -(-len(panels) // 2))
    grid = figure.subplots(-(-len(panels) // 2), 2, squeeze=False).ravel()
    for axes, draw in zip(grid, panels, strict=False):
        draw(axes, plan)
        _frame(axes, plan)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(f"{plan.clients:,} clients, {plan.samples:,} samples, batches of {plan.batch_size:,}")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ConfigError(f"can't write '{path}': {error}; name a file in a folder you may write to") from None
    return path


def _panels(plan: Plan) -> list[Callable[[Axes, Plan], None]]:
    panels: list[Callable[[Axes, Plan], None]] = [_participation, _schedule]
    if plan.rows[0].times:
        panels.append(_times)
    if plan.classes:
        panels.append(_deviation)
    if plan.rows[0].payload:
        panels.append(_payload)
    return panels


def _participation(axes: Axes, plan: Plan) -> None:
    _bound(axes, {row.workloads: 100 * row.participation_bound for row in plan.rows})
    _lines(axes, plan, lambda row: 100 * row.participation_system)
    axes.set(title="Participation", ylabel="clients per round (%)", ylim=(0, 104))


def _schedule(axes: Axes, plan: Plan) -> None:
    asked = _asked(plan)
    _bound(axes, {n: n for n in asked})
    _lines(axes, plan, lambda row: row.speedup)
    for n in asked:
        best = min((row for row in plan.rows if row.workloads == n), key=lambda row: row.rounds_max)
        side, offset = ("left", (9, -4)) if n == 1 else ("right", (-8, 3))
        text = f"{best.rounds_max:,} rounds"
        axes.annotate(text, (n, best.speedup), offset, textcoords="offset points", ha=side, size=8)
    axes.set(title="Ideal schedule", ylabel="speed-up over one after another (x)")
    axes.set_yscale("log", base=2)
    axes.set_yticks(asked, [f"{n:,}" for n in asked])


def _times(axes: Axes, plan: Plan) -> None:
    _lines(axes, plan, lambda row: row.epoch_time)
    axes.set(title="Time on the slots", ylabel="epoch, in rounds of the fastest slot", ylim=(0, None))


def _deviation(axes: Axes, plan: Plan) -> None:
    _lines(axes, plan, lambda row: row.deviation or 0.0)
    axes.set(title="Batch deviation", ylabel="mean L1 distance to global labels", ylim=(0, None))


def _payload(axes: Axes, plan: Plan) -> None:
    unit, scale = _unit(max(row.payload.real_bytes for row in plan.rows if row.payload))
    _lines(axes, plan, lambda row: row.payload.real_bytes / scale if row.payload else 0.0)
    axes.set(title="Logical payload", ylabel=f"{unit} per epoch, real execution", ylim=(0, None))


def _lines(axes: Axes, plan: Plan, value: Callable[[Row], float]) -> None:
    """One line per rule, each from N = 1, where all rules are the same."""
    single, *others = plan.rows
    for index, rule in enumerate(dict.fromkeys(row.rule for row in others)):
        colour, marker, dash = STYLES[index % len(STYLES)]
        rows = [single, *(row for row in others if row.rule == rule)]
        points: tuple[list[int], list[float]] = (
            [row.workloads for row in rows],
            [value(row) for row in rows],
        )
        axes.plot(*points, color=colour, marker=marker, ls=dash, ms=6, lw=1.6, mfc="white", mew=1.5, label=rule)


def _bound(axes: Axes, highest: dict[int, float]) -> None:
    axes.plot(list(highest), list(highest.values()), color="0.35", lw=1, ls=(0, (1, 1)), label="bound")


def _asked(plan: Plan) -> list[int]:
    return sorted({row.workloads for row in plan.rows})


def _frame(axes: Axes, plan: Plan) -> None:
    asked = _asked(plan)
    axes.set_xscale("log", base=2)
    axes.set_xticks(asked, [f"{n:,}" for n in asked])
    axes.minorticks_off()
    axes.set_xlabel("workloads N")
    axes.axvline(plan.recommendation.workloads, color="0.85", lw=6, zorder=0, label="recommended N")
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
