"""What a person sees of a study while it trains: a bar per run on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gcpsl.studies.tasks import Task
from gcpsl.summary_view import duration

PLAIN_S = 60.0


class Pace:
    """When all will be done, from the epochs that this study has trained so far and how long that took."""

    def __init__(self, epochs: int) -> None:
        self._epochs_left, self._epochs_done = epochs, 0
        self._started = time.monotonic()

    def advance(self, epochs: int) -> None:
        self._epochs_done += epochs
        self._epochs_left -= epochs

    def drop(self, epochs: int) -> None:
        """These will not be trained here."""
        self._epochs_left -= epochs

    def share(self) -> float:
        """Of the epochs that were to be trained."""
        return self._epochs_done / max(self._epochs_done + self._epochs_left, 1)

    def left_s(self) -> float | None:
        if self._epochs_done <= 0:
            return None
        return (time.monotonic() - self._started) / self._epochs_done * max(self._epochs_left, 0)


class StudyLines:
    """A line when a run starts or ends, and one now and then in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = time.monotonic()

    def _print(self, text: str) -> None:
        self._shown = time.monotonic()
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def started(self, total: int, reused: int, jobs: int) -> None:
        at_once = f", {jobs} at once" if jobs > 1 else ""
        self._print(f"{_runs(total)}: {reused} finished already, {total - reused} to train{at_once}")

    def run_started(self, task: Task, epochs: int) -> None:
        how = f"goes on after epoch {epochs}/{task.config.train.epochs}" if epochs else "started"
        self._print(f"{task.title}: {how}")

    def run_finished(self, task: Task, accuracy: float | None, seconds: float, left: int, pace: Pace) -> None:
        test = "" if accuracy is None else f" test {accuracy:.2f}%"
        self._print(f"{task.title}: finished,{test} after {duration(seconds)}; {_left(left, pace)}")

    def run_failed(self, task: Task, message: str, left: int) -> None:
        self._print(f"{task.title}: FAILED: {message}; {_runs(left)} left")

    def run_stopped(self, task: Task, epochs: int) -> None:
        self._print(f"{task.title}: stopped in epoch {epochs + 1}/{task.config.train.epochs}")

    def run_elsewhere(self, task: Task) -> None:
        self._print(f"{task.title}: left to the process that trains it already")

    def run_elsewhere_finished(self, task: Task) -> None:
        self._print(f"{task.title}: finished by another process")

    def progress(self, active: Sequence[tuple[Task, int]], left: int, pace: Pace) -> None:
        if time.monotonic() - self._shown >= PLAIN_S:
            at = ", ".join(f"{task.title} {epochs}/{task.config.train.epochs}" for task, epochs in active)
            self._print(f"{at or 'waiting for the runs of another process'}; {_left(left, pace)}")

    def stopping(self, active: int, *, again: bool) -> None:
        self._print("Stopping at once." if again else f"Stopping {_runs(active)}; once more to stop at once.")

    def close(self) -> None:
        """Nothing is left on the screen."""


class StudyLive(StudyLines):
    """The same lines, above bars that move."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bars: dict[str, TaskID] = {}

    def started(self, total: int, reused: int, jobs: int) -> None:
        super().started(total, reused, jobs)
        self._all = self._bar.add_task("all runs", total=1.0, text="")
        self._bar.start()

    def progress(self, active: Sequence[tuple[Task, int]], left: int, pace: Pace) -> None:
        for key in set(self._bars) - {task.key for task, _ in active}:
            self._bar.remove_task(self._bars.pop(key))
        for task, epochs in active:
            total = task.config.train.epochs
            if task.key not in self._bars:
                self._bars[task.key] = self._bar.add_task(task.title, total=total, text="")
            self._bar.update(self._bars[task.key], completed=epochs, text=f"epoch {epochs}/{total}")
        self._bar.update(self._all, completed=pace.share(), text=_left(left, pace))

    def close(self) -> None:
        self._bar.stop()


def make_study_display(console: Console) -> StudyLines:
    return StudyLive(console) if console.is_terminal else StudyLines(console)


def _left(runs: int, pace: Pace) -> str:
    if not runs:
        return "no runs left"
    left_s = pace.left_s()
    return f"{_runs(runs)} left" + ("" if left_s is None else f", about {duration(left_s)}")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
