"""What a person sees while a run trains, on a terminal and elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from conftest import RECORD
from rich.console import Console

from gcpsl import display
from gcpsl.display import JsonLines, Lines, Live, RunClock, download_progress, make_display
from gcpsl.summary_view import duration


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=100), out


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (125, "2:05"), (3725, "1:02:05")]
)
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_terminal_gets_a_live_line_and_everything_else_plain_ones() -> None:
    assert isinstance(make_display(console(terminal=True)[0], as_json=False), Live)
    assert isinstance(make_display(console(terminal=False)[0], as_json=False), Lines)
    assert isinstance(make_display(console(terminal=True)[0], as_json=True), JsonLines)


def test_the_live_line_shows_epoch_round_loss_accuracy_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "REDRAW_S", 0.0)
    screen, out = console(terminal=True)
    live = Live(screen)
    live.started(3, 0)
    live.epoch_started(1, 7, 0)
    live.rounds_done(2.0, 1)
    live.rounds_done(2.0, 6)
    live.epoch_done(RECORD)
    live.epoch_started(2, 7, 0)
    live.rounds_done(1.0, 1)
    live.close()
    text = out.getvalue()
    for part in (
        "epoch 1/3",
        "round 1/7, loss 2.000",
        "left",
        "test 91.5%",
        "validation 90.00%",
        "round 1/7, loss 1.000",
    ):
        assert part in text


def test_plain_lines_appear_once_an_epoch_and_now_and_then_inside_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out = console(terminal=False)
    lines = Lines(screen)
    lines.message("hello")
    lines.started(3, 0)
    lines.epoch_started(1, 7, 0)
    lines.rounds_done(2.0, 1)
    monkeypatch.setattr(display, "PLAIN_S", 0.0)
    lines.rounds_done(2.0, 1)
    lines.epoch_done(replace(RECORD, validation_accuracy=None))
    printed = out.getvalue().splitlines()
    assert printed[0] == "hello"
    assert printed[1].startswith("epoch 1/3  round 2/7, loss 2.000")
    assert printed[2].startswith("epoch 1/3  loss 0.5000  test 91.50%  1.2 s")
    assert len(printed) == 3


def test_time_left_counts_only_this_processs_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    clock = RunClock()
    clock.started(epochs=10, epochs_done=4)
    clock.epoch_started(5, rounds=10, rounds_done=5)
    assert clock.left() == "?"
    now = 110.0
    clock.advance(1.0, 5)
    assert clock.left() == duration(10 / 0.5 * 5)


def test_downloads_show_a_bar_per_file() -> None:
    screen, out = console(terminal=True)
    with download_progress(screen) as progress:
        progress("a.gz", 0, 2000)
        progress("a.gz", 2000, 2000)
        progress("b.gz", 10, None)
    assert "a.gz" in out.getvalue()
    assert "2.0/2.0 kB" in out.getvalue()
    assert "b.gz" in out.getvalue()
