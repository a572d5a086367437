"""`gcpsl`, but a rank fails where the environment says: SCRIPT="rank epoch rounds how", once per folder MARKS.

`how` is `kill`, or `stop`: the process hangs, and is killed 8 s later. `rounds` are the rank's own in that epoch; -1 is
while it writes its shard of a checkpoint.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from gcpsl import cli
from gcpsl.runs import RunFolder
from gcpsl.training import Training

RANK, EPOCH, ROUNDS, HOW = os.environ["SCRIPT"].split()
MARK = Path(os.environ["MARKS"]) / "failed"
rounds_done, save_shard = Training.rounds_done, RunFolder.save_shard


def fail() -> None:
    if os.environ["RANK"] == RANK and not MARK.exists():
        MARK.touch()
        own = os.getpid()
        if HOW == "stop" and os.fork() == 0:
            time.sleep(8)
            os.kill(own, signal.SIGKILL)
            os._exit(0)
        os.kill(own, signal.SIGKILL if HOW == "kill" else signal.SIGSTOP)


def failing_rounds_done(self: Training, loss: float, rounds: int) -> None:
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
