"""A run's summary as a person reads it. Knows records only."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table

from gcpsl.records import Summary, TargetResult


def summary_view(summary: Summary) -> RenderableType:
    """A run's end, for a person."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _summary_rows(summary):
        table.add_row(name, text)
    return table


def _summary_rows(s: Summary) -> list[tuple[str, str]]:
    rows = [("test accuracy", f"{s.test_accuracy:.2f}% after {s.epochs} epochs")]
    if s.best_epoch is not None:
        best = f"{s.best_test_accuracy:.2f}%, where validation was best: {s.best_validation_accuracy:.2f}%"
        rows.append(("best checkpoint", f"{best} in epoch {s.best_epoch}"))
    rows += [
        (
            "time",
            f"{duration(s.training_s)} of training, {duration(s.setup_s)} of set-up, {duration(s.wall_s)} in all "
            f"({s.rounds_per_s:,.0f} rounds/s, {s.samples_per_s:,.0f} samples/s)",
        ),
        (
            "participation",
            f"{100 * s.participation_system:.1f}% of clients supply data in a round; "
            f"at most {100 * s.participation_bound:.1f}% could",
        ),
        (
            "schedule speed-up",
            f"ideal {s.speedup_ideal:.2f}x of {s.workloads} ({100 * s.efficiency_ideal:.0f}% efficiency), "
            f"real {s.speedup_real:.2f}x in this runtime",
        ),
        (
            "payload",
            f"{_bytes(s.payload_real_bytes)} of tensors over the network, had the clients been remote",
        ),
    ]
    rows += [(f"{target.target:g}% {s.target_split}", _target(target)) for target in s.targets]
    rows.append(("memory", f"{_bytes(s.memory_bytes_max)} at most"))
    rows.append(("run folder", s.run))
    return rows


def _target(target: TargetResult) -> str:
    if target.epoch is None or target.time_s is None:
        return "not reached"
    return f"reached in epoch {target.epoch}, after {target.rounds:,} rounds and {duration(target.time_s)}"


def _bytes(count: float) -> str:
    """Decimal units, as the paper's payload has them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3f} TB"


def duration(seconds: float) -> str:
    """Like 9 s, 2:05 or 1:02:05."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
