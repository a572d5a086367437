"""Ctrl-C and SIGTERM as a wish to stop at the next round, so that a checkpoint can be written first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from gcpsl.display import Display


class StopSignals:
    """Inside the block the first signal sets `asked`; a second one ends the process as it usually would, unless it is
    one of several, whom whoever started them signals again and kills in the end."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, display: Display, *, several: bool) -> None:
        self.asked = False
        self._display, self._several = display, several
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._ask) for number in self.SIGNALS}
        return self

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self._several:
            if not self.asked:
                self._display.message("Stopping once every rank has come to the end of its round.")
        else:
            self._restore()
            self._display.message("Stopping after this round; once more to stop at once.")
        self.asked = True

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def __exit__(self, *_: object) -> None:
        self._restore()
