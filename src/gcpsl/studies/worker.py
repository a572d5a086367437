"""One run of a study in a process of its own: claimed, trained or continued, and its output kept in a log.

Without a GPU the process is a fork of one that has imported everything, so that a run starts at once and its memory is
its own. With one it starts afresh, as CUDA wants it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import connection, process
from pathlib import Path
from typing import Any

from gcpsl.config import to_toml
from gcpsl.errors import INTERRUPTED, GcpslError
from gcpsl.studies.matching import best_of, find_runs
from gcpsl.studies.tasks import BEGUN, FAILED, Task, claimed

ELSEWHERE = 75  # the exit code of a process that found its run claimed by another
DEFECT = 1
PRELOADED = ["gcpsl.training", "gcpsl.cli", "torch._dynamo"]  # the last is what a first optimizer step imports


@dataclass(frozen=True)
class Place:
    """Where a run computes: its CPU threads, what it must see in its environment, and whether it may be forked."""

    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    forked: bool = False


def start(task: Task, root: Path, place: Place) -> process.BaseProcess:
    """Begin in the background; the exit code is `gcpsl train`'s, or `ELSEWHERE`."""
    context: Any = multiprocessing.get_context("forkserver" if place.forked else "spawn")
    if place.forked:
        context.set_forkserver_preload(PRELOADED)
    child: process.BaseProcess = context.Process(target=work, args=(task, root, place), name=task.title, daemon=True)
    child.start()
    return child


def work(task: Task, root: Path, place: Place) -> None:
    """The body of that process."""
    os.setpgrp()  # a terminal's Ctrl-C goes to the study alone, which passes it on once
    threading.Thread(target=_stop_with_the_study, daemon=True).start()
    with claimed(task.log) as free:
        if not free:
            sys.exit(ELSEWHERE)
        _write_to(task.log)
        os.environ.update(place.environment)
        code = _train(task, root, place.threads)
        if code not in (0, INTERRUPTED, ELSEWHERE):
            print(f"{FAILED}, exit code {code}", flush=True)  # noqa: T201
        sys.exit(code)


def _train(task: Task, root: Path, threads: int) -> int:
    try:
        return _continue_or_begin(task, root, threads)
    except GcpslError as error:
        print(f"gcpsl: {error}", flush=True)  # noqa: T201 - as the command line does
        return error.exit_code
    except SystemExit as ended:  # several ranks have said why themselves
        return ended.code if isinstance(ended.code, int) else DEFECT
    except Exception as error:  # noqa: BLE001 - a defect of ours ends this run, and no other
        traceback.print_exc()
        print(f"gcpsl: {type(error).__name__}: {error}", flush=True)  # noqa: T201
        return DEFECT


def _continue_or_begin(task: Task, root: Path, threads: int) -> int:
    """Under the claim the folders are looked through again: another process may have come between."""
    run = best_of(find_runs(root)[0]).get(task.key)
    if run is not None and run.status == "finished":
        return 0
    if run is not None and run.status == "running":
        return ELSEWHERE
    moved = _moved(task) if run else []
    file = task.log.with_suffix(".toml")
    words = ["runs", "resume", str(run.folder.path), *moved] if run else ["train", str(file)]
    if (task.config.runtime.slots or 1) > 1:
        from gcpsl.launch import start_slots

        file.write_text(to_toml(task.config))
        start_slots(task.config, words)
    from gcpsl import api, devices
    from gcpsl.display import PatientConsole, make_display

    devices.use_threads(threads)
    display = make_display(PatientConsole(), as_json=False)
    if run is None:
        return 0 if api.train(task.config, display=display).finished else INTERRUPTED
    return 0 if api.resume(run.folder.path, *moved, display=display).finished else INTERRUPTED


def _moved(task: Task) -> list[str]:
    """Where the data lies now, for a run that may have begun elsewhere."""
    root = task.config.data.root
    return [f"data.root={root.absolute()}"] if root else []


def _write_to(log: Path) -> None:
    """Everything that this process and those that it starts print goes behind what the log has."""
    with log.open("a") as kept:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(kept.fileno(), stream.fileno())
    print(f"{BEGUN}{time.strftime('%Y-%m-%d %H:%M:%S')} process {os.getpid()}", flush=True)  # noqa: T201


def _stop_with_the_study() -> None:
    """If the study's process dies, this one stops as if asked to, with a checkpoint."""
    study = multiprocessing.parent_process()
    if study is not None:
        connection.wait([study.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
