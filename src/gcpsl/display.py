"""What a person sees of a run while it trains: a live line on a terminal, plain lines elsewhere, JSON for machines.

Knows nothing of how training is done.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from gcpsl.records import EpochRecord, Summary
from gcpsl.summary_view import duration, summary_view

REDRAW_S = 0.1
PLAIN_S = 30.0
FILE_COLUMNS = 160


class Display(Protocol):
    def message(self, text: str) -> None: ...

    def started(self, epochs: int, epochs_done: int) -> None: ...

    def epoch_started(self, epoch: int, rounds: int, rounds_done: int) -> None: ...

    def rounds_done(self, loss: float, rounds: int) -> None: ...

    def epoch_done(self, record: EpochRecord) -> None: ...

    def finished(self, summary: Summary) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Says nothing: the default of the Python API."""

    def message(self, text: str) -> None:
        """Nothing."""

    def started(self, epochs: int, epochs_done: int) -> None:
        """Nothing."""

    def epoch_started(self, epoch: int, rounds: int, rounds_done: int) -> None:
        """Nothing."""

    def rounds_done(self, loss: float, rounds: int) -> None:
        """Nothing."""

    def epoch_done(self, record: EpochRecord) -> None:
        """Nothing."""

    def finished(self, summary: Summary) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PatientConsole(Console):
    """Goes on without anybody reading: a run whose output is piped to `head` is trained to its end all the same.

    Wide where no terminal wraps the lines, unless COLUMNS says how wide.
    """

    def __init__(self) -> None:
        super().__init__()
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = FILE_COLUMNS

    def print_whole(self, renderable: RenderableType) -> None:
        """Numbers are never cut: what is wider than the console is printed as wide as it must be."""
        self.width = max(self.width, self.measure(renderable, options=self.options.update(width=FILE_COLUMNS)).minimum)
        self.print(renderable, crop=False)

    def on_broken_pipe(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


class JsonLines(Silent):
    """One JSON object per epoch and one for the summary, on standard output."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def _write(self, kind: str, value: dict[str, Any]) -> None:
        try:
            self._console.file.write(json.dumps({"event": kind, **value}, allow_nan=False) + "\n")
            self._console.file.flush()
        except BrokenPipeError:
            self._console.on_broken_pipe()

    def epoch_done(self, record: EpochRecord) -> None:
        self._write("epoch", record.to_json())

    def finished(self, summary: Summary) -> None:
        self._write("summary", summary.to_json())


class Lines(Silent):
    """A line per epoch, and one every half minute inside a long epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = RunClock()
        self._shown = time.monotonic()

    def message(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def started(self, epochs: int, epochs_done: int) -> None:
        self._clock.started(epochs, epochs_done)

    def epoch_started(self, epoch: int, rounds: int, rounds_done: int) -> None:
        self._clock.epoch_started(epoch, rounds, rounds_done)

    def rounds_done(self, loss: float, rounds: int) -> None:
        self._clock.advance(loss, rounds)
        if time.monotonic() - self._shown >= PLAIN_S:
            self._show(self._clock.inside_epoch())

    def epoch_done(self, record: EpochRecord) -> None:
        self._clock.epoch_done(record)
        self._show(f"{accuracies(record)}  {record.epoch_s:.1f} s, {self._clock.left()} left")

    def finished(self, summary: Summary) -> None:
        self._console.print(summary_view(summary))

    def _show(self, text: str) -> None:
        self._shown = time.monotonic()
        self._console.print(f"{self._clock.position()}  {text}", highlight=False, soft_wrap=True)


class Live(Silent):
    """One line that moves, with a line left behind for each epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = RunClock()
        self._latest = ""
        self._drawn = 0.0
        self._bar = Progress(
            TextColumn("{task.fields[position]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
        )
        self._task = self._bar.add_task("", position="", text="")

    def message(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def started(self, epochs: int, epochs_done: int) -> None:
        self._clock.started(epochs, epochs_done)
        self._bar.start()

    def epoch_started(self, epoch: int, rounds: int, rounds_done: int) -> None:
        self._clock.epoch_started(epoch, rounds, rounds_done)

    def rounds_done(self, loss: float, rounds: int) -> None:
        self._clock.advance(loss, rounds)
        if time.monotonic() - self._drawn >= REDRAW_S:
            self._drawn = time.monotonic()
            text = f"{self._clock.inside_epoch()}{self._latest}"
            self._bar.update(
                self._task,
                position=self._clock.position(),
                text=text,
                total=self._clock.rounds,
                completed=self._clock.rounds_done,
                refresh=True,
            )

    def epoch_done(self, record: EpochRecord) -> None:
        self._clock.epoch_done(record)
        self._latest = f", test {record.test_accuracy:.1f}%"
        self._bar.console.print(
            f"{self._clock.position()}  {accuracies(record)}  {record.epoch_s:.1f} s", highlight=False
        )

    def finished(self, summary: Summary) -> None:
        self._console.print(summary_view(summary))

    def close(self) -> None:
        self._bar.stop()


class RunClock:
    """Where the run stands and when it will be done, from the pace of this process's rounds."""

    def __init__(self) -> None:
        self.epochs = self.epoch = self.rounds = self.rounds_done = 0
        self._loss: float | None = None
        self._epochs_at_start = 0.0
        self._started = time.monotonic()

    def started(self, epochs: int, epochs_done: int) -> None:
        self.epochs = epochs
        self._epochs_at_start = float(epochs_done)
        self._started = time.monotonic()

    def epoch_started(self, epoch: int, rounds: int, rounds_done: int) -> None:
        if rounds_done:
            self._epochs_at_start += rounds_done / rounds
        self.epoch, self.rounds, self.rounds_done, self._loss = epoch, rounds, rounds_done, None

    def advance(self, loss: float, rounds: int) -> None:
        self._loss = loss if self._loss is None else 0.98 * self._loss + 0.02 * loss
        self.rounds_done += rounds

    def epoch_done(self, record: EpochRecord) -> None:
        self.epoch, self.rounds_done = record.epoch, self.rounds

    def position(self) -> str:
        return f"epoch {self.epoch:>{len(str(self.epochs))}}/{self.epochs}"

    def inside_epoch(self) -> str:
        loss = "" if self._loss is None else f" loss {self._loss:.3f},"
        return f"round {self.rounds_done}/{self.rounds},{loss} {self.left()} left"

    def left(self) -> str:
        epochs_done = self.epoch - 1 + self.rounds_done / max(self.rounds, 1)
        fresh = epochs_done - self._epochs_at_start
        if fresh <= 0:
            return "?"
        return duration((time.monotonic() - self._started) / fresh * (self.epochs - epochs_done))


def accuracies(record: EpochRecord) -> str:
    validation = "" if record.validation_accuracy is None else f"  validation {record.validation_accuracy:5.2f}%"
    return f"loss {record.loss:.4f}{validation}  test {record.test_accuracy:5.2f}%"


def make_display(console: Console, *, as_json: bool) -> Display:
    if as_json:
        return JsonLines(console)
    return Live(console) if console.is_terminal else Lines(console)


@contextmanager
def download_progress(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar per file: call it with the file's name, the bytes that are there and how many there will be."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn())
    bars: dict[str, TaskID] = {}
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_interactive) as bar:

        def show(file: str, done_bytes: int, total_bytes: int | None) -> None:
            if file not in bars:
                bars[file] = bar.add_task(file, total=total_bytes)
            bar.update(bars[file], completed=done_bytes, total=total_bytes)

        yield show
