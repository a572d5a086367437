"""Training what a study lacks: several runs at once, each in its own process, until all have finished or failed.

A failed run doesn't stop the others. A run that another process trains is waited for, and taken over if that one dies.
Knows of runs what their folders and exit codes say.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection, process
from pathlib import Path
from types import FrameType

from gcpsl.errors import INTERRUPTED
from gcpsl.runs import RunFolder
from gcpsl.studies import worker
from gcpsl.studies.progress import Pace, StudyLines
from gcpsl.studies.tasks import Standing, Task, failure_of, is_claimed, standings
from gcpsl.studies.worker import ELSEWHERE, Place

POLL_S = 0.25
LOOK_AGAIN_S = 2.0


@dataclass(frozen=True)
class Failure:
    task: Task
    message: str


@dataclass
class Outcome:
    """What became of a study's runs."""

    reused: int = 0
    trained: int = 0
    failures: list[Failure] = field(default_factory=list)
    stopped: bool = False
    left: int = 0


@dataclass
class _Active:
    """A run under way."""

    task: Task
    child: process.BaseProcess
    place: int
    folder: Path
    started: float
    epochs: int


class Runner:
    """One `gcpsl study run`."""

    def __init__(self, root: Path, places: Sequence[Place], display: StudyLines) -> None:
        self._root, self._places, self._display = root, places, display
        self._free = list(reversed(range(len(places))))
        self._pending: deque[Task] = deque()
        self._elsewhere: list[Task] = []
        self._active: list[_Active] = []
        self._outcome = Outcome()
        self._signals = 0
        self._looked = 0.0

    def run(self, asked: Sequence[Standing]) -> Outcome:
        """Until every run has finished, failed, or been stopped by Ctrl-C."""
        todo = [one for one in asked if one.status != "finished"]
        self._outcome.reused = len(asked) - len(todo)
        self._pace = Pace(sum(one.epochs_left for one in todo if one.status != "running"))
        self._folders = {one.task.key: one.run.folder.path for one in todo if one.run}
        self._pending.extend(one.task for one in todo if one.status != "running")
        self._elsewhere = [one.task for one in todo if one.status == "running"]
        self._display.started(len(asked), self._outcome.reused, len(self._places))
        with self._stop_signals():
            try:
                while self._pending or self._active or self._elsewhere:
                    if self._signals and not self._active:
                        break
                    self._step()
            finally:
                self._display.close()
        self._outcome.stopped = bool(self._signals)
        self._outcome.left = len(self._pending) + len(self._elsewhere)
        return self._outcome

    def _step(self) -> None:
        while self._pending and self._free and not self._signals:
            self._start(self._pending.popleft())
        self._look_elsewhere()
        connection.wait([active.child.sentinel for active in self._active], POLL_S)
        for active in list(self._active):
            self._count_epochs(active)
            if active.child.exitcode is not None:
                self._end(active)
        self._display.progress([(active.task, active.epochs) for active in self._active], self._left(), self._pace)

    def _left(self) -> int:
        return len(self._pending) + len(self._active) + len(self._elsewhere)

    def _start(self, task: Task) -> None:
        if is_claimed(task.log):
            self._leave(task, _epochs_logged(self._folder(task)))
            return
        place = self._free.pop()
        child = worker.start(task, self._root, self._places[place])
        folder = self._folder(task)
        epochs = _epochs_logged(folder)
        self._active.append(_Active(task, child, place, folder, time.monotonic(), epochs))
        self._display.run_started(task, epochs)
        if self._signals:
            self._pass_on()

    def _folder(self, task: Task) -> Path:
        return self._folders.get(task.key, task.path)

    def _leave(self, task: Task, epochs: int) -> None:
        """To the process that trains it already."""
        self._elsewhere.append(task)
        self._pace.drop(task.config.train.epochs - epochs)
        self._display.run_elsewhere(task)

    def _count_epochs(self, active: _Active) -> None:
        epochs = _epochs_logged(active.folder)
        self._pace.advance(epochs - active.epochs)
        active.epochs = epochs

    def _end(self, active: _Active) -> None:
        self._active.remove(active)
        self._free.append(active.place)
        code = active.child.exitcode
        if code == 0:
            self._finished(active)
        elif code == ELSEWHERE:
            self._leave(active.task, active.epochs)
        elif self._signals:
            self._pending.appendleft(active.task)
            self._display.run_stopped(active.task, active.epochs)
        else:
            self._failed(active, code)

    def _finished(self, active: _Active) -> None:
        self._outcome.trained += 1
        summary = RunFolder(active.folder).read_json("summary.json") or {}
        seconds = time.monotonic() - active.started
        self._display.run_finished(active.task, summary.get("test_accuracy"), seconds, self._left(), self._pace)

    def _failed(self, active: _Active, code: int | None) -> None:
        if code is not None and code < 0:
            message = f"its process was ended by {signal.Signals(-code).name}"
        elif code == INTERRUPTED:
            message = "it was stopped by a signal to its own process"
        else:
            message = failure_of(active.task.log) or f"exit code {code}"
        self._pace.drop(active.task.config.train.epochs - active.epochs)
        failure = Failure(active.task, message)
        self._outcome.failures.append(failure)
        self._display.run_failed(active.task, message, self._left())

    def _look_elsewhere(self) -> None:
        """What has become of the runs that other processes train; one whose process has died is ours."""
        if not self._elsewhere or time.monotonic() - self._looked < LOOK_AGAIN_S:
            return
        self._looked = time.monotonic()
        now, _ = standings(self._elsewhere, self._root)
        self._elsewhere = [one.task for one in now if one.status == "running"]
        for one in now:
            if one.run is not None:
                self._folders[one.task.key] = one.run.folder.path
            if one.status == "finished":
                self._outcome.reused += 1
                self._display.run_elsewhere_finished(one.task)
            elif one.status != "running":
                self._pace.drop(-one.epochs_left)
                self._pending.append(one.task)

    @contextmanager
    def _stop_signals(self) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM are passed on to the runs: once to save themselves, again to end at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._display.stopping(len(self._active), again=self._signals > 1)
        self._pass_on()

    def _pass_on(self) -> None:
        for active in self._active:
            active.child.terminate()


def _epochs_logged(folder: Path) -> int:
    """Cheap enough to ask four times a second; a torn last line doesn't count."""
    try:
        return (folder / "epochs.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
