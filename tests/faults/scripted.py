"""`gcpsl`, but a rank fails where the environment says: SCRIPT="rank epoch rounds how", once per folder MARKS.

`how` is `kill`; `stop`: the process hangs, and is killed 8 s later; or `host`: with it torchrun dies that started it.
`rounds` are the rank's own in that epoch; -1 is while it writes its shard of a checkpoint. HOST names the host that the
rank believes it is on, so that ranks don't see each other's processes. Every rank warns and logs in its first round.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import time
import warnings
from pathlib import Path

from gcpsl import cli
from gcpsl.runs import RunFolder
from gcpsl.training import Training

RANK, EPOCH, ROUNDS, HOW = os.environ["SCRIPT"].split()
MARK = Path(os.environ["MARKS"]) / "failed"
if "HOST" in os.environ:
    socket.gethostname = lambda: os.environ["HOST"]
rounds_done, save_shard = Training.rounds_done, RunFolder.save_shard


def fail() -> None:
    if os.environ["RANK"] == RANK and not MARK.exists():
        MARK.touch()
        own = os.getpid()
        if HOW == "stop" and os.fork() == 0:
            time.sleep(8)
            os.kill(own, signal.SIGKILL)
            os._exit(0)
        if HOW == "host":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(own, signal.SIGSTOP if HOW == "stop" else signal.SIGKILL)


@functools.cache
def warn() -> None:
    warnings.warn("scripted", stacklevel=1)
    logging.getLogger("scripted").warning("a scripted message")


def failing_rounds_done(self: Training, loss: float, rounds: int) -> None:
    warn()
    assert self._progress is not None
    if len(self._records) + 1 == int(EPOCH) and sum(self._progress.rounds_done) >= int(ROUNDS) >= 0:
        fail()
    rounds_done(self, loss, rounds)


def failing_save_shard(self: RunFolder, *args: object) -> str:
    if ROUNDS == "-1" and len(self.epochs()) + 1 >= int(EPOCH):
        fail()
    return save_shard(self, *args)  # type: ignore[arg-type]


Training.rounds_done = failing_rounds_done  # type: ignore[method-assign]
RunFolder.save_shard = failing_save_shard  # type: ignore[assignment]
cli.main()
