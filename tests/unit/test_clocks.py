"""What a run says of its own time, against a clock outside it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import gcpsl
from gcpsl.config import Config
from gcpsl.data import Dataset
from gcpsl.display import Silent
from gcpsl.records import EpochRecord
from gcpsl.runs import RunFolder
from gcpsl.training import Result

MakeConfig = Callable[..., Config]
NAP_S = 0.5


class Leaving(Silent):
    """Takes its time over the first epoch, and then wishes to stop."""

    def epoch_done(self, record: EpochRecord) -> None:
        if record.epoch == 1:
            time.sleep(NAP_S)
            signal.raise_signal(signal.SIGINT)


def parts_s(result: Result, epochs: tuple[EpochRecord, ...]) -> float:
    """The times of set-up and of these epochs, which the wall time has in it."""
    assert result.summary is not None
    return result.summary.setup_s + sum(record.epoch_s + record.test_s for record in epochs)


def test_the_wall_time_is_the_time_from_start_to_end(small: MakeConfig, dataset: Dataset) -> None:
    started = time.perf_counter()
    result = gcpsl.train(small(), dataset=dataset)
    elapsed = time.perf_counter() - started
    assert result.summary is not None
    assert 0 < parts_s(result, result.epochs) <= result.summary.wall_s <= elapsed


def test_a_resumed_run_counts_the_time_of_the_processes_before_it(small: MakeConfig, dataset: Dataset) -> None:
    started = time.perf_counter()
    stopped = gcpsl.train(small("train.epochs=3"), dataset=dataset, display=Leaving())
    first_s = time.perf_counter() - started
    assert not stopped.finished
    folder = RunFolder(stopped.path)
    before_s = folder.load_checkpoint(folder.newest_checkpoint() or "").meta["wall_s"]
    assert NAP_S < before_s <= first_s
    started = time.perf_counter()
    resumed = gcpsl.resume(stopped.path, dataset=dataset)
    second_s = time.perf_counter() - started
    assert resumed.summary is not None
    # the second epoch began in the first process
    assert before_s + parts_s(resumed, resumed.epochs[2:]) <= resumed.summary.wall_s <= before_s + second_s
