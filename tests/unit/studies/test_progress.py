"""What is shown while a study trains, and how the time left is worked out."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gcpsl import config as configs
from gcpsl.studies import Row, Study, progress
from gcpsl.studies.progress import Pace, StudyLines, StudyLive, make_study_display
from gcpsl.studies.tasks import Task, tasks


@pytest.fixture
def task() -> Task:
    one = Study("mine", "", (Row("a", configs.load(None, ["train.epochs=10"])),))
    return tasks(one, [0])[0]


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=100), out


def test_the_time_left_follows_from_the_epochs_so_far() -> None:
    pace = Pace(30)
    assert pace.left_s() is None
    pace.advance(10)
    pace.drop(10)
    pace._started -= 20
    assert pace.left_s() == pytest.approx(20, abs=1)
    assert pace.share() == 0.5


def test_plain_lines_say_what_starts_ends_fails_and_waits(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_S", 0.0)
    screen, out = console(terminal=False)
    shown = make_study_display(screen)
    assert type(shown) is StudyLines
    pace = Pace(20)
    shown.started(3, 1, 2)
    shown.run_started(task, 4)
    shown.progress([(task, 5)], 2, pace)
    shown.progress([], 1, pace)
    shown.run_finished(task, 91.5, 61, 1, pace)
    shown.run_failed(task, "it diverged", 0)
    shown.run_stopped(task, 5)
    shown.run_elsewhere(task)
    shown.run_elsewhere_finished(task)
    shown.stopping(1, again=False)
    shown.stopping(1, again=True)
    shown.close()
    assert out.getvalue().splitlines() == [
        "3 runs: 1 finished already, 2 to train, 2 at once",
        "a seed 0: goes on after epoch 4/10",
        "a seed 0 5/10; 2 runs left",
        "waiting for the runs of another process; 1 run left",
        "a seed 0: finished, test 91.50% after 1:01; 1 run left",
        "a seed 0: FAILED: it diverged; 0 runs left",
        "a seed 0: stopped in epoch 6/10",
        "a seed 0: left to the process that trains it already",
        "a seed 0: finished by another process",
        "Stopping 1 run; once more to stop at once.",
        "Stopping at once.",
    ]


def test_a_terminal_gets_a_bar_per_run_and_one_for_all(task: Task) -> None:
    screen, out = console(terminal=True)
    shown = make_study_display(screen)
    assert isinstance(shown, StudyLive)
    pace = Pace(10)
    shown.started(1, 0, 1)
    shown.run_started(task, 0)
    pace.advance(5)
    shown.progress([(task, 5)], 1, pace)
    shown._bar.refresh()
    shown.progress([], 0, pace)
    shown.close()
    for part in ("all runs", "1 run left, about", "a seed 0", "epoch 5/10"):
        assert part in out.getvalue()
