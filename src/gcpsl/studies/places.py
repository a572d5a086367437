"""How many runs of a study go on at once, and where: a GPU each, or a share of the CPU's cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gcpsl.studies.tasks import Task
from gcpsl.studies.worker import Place


def places(asked: Sequence[Task], *, timed: bool, jobs: int | None, gpus: int, cores: int) -> tuple[Place, ...]:
    """A place for each run that goes on at once.

    By default one per GPU, or else per core. Where seconds are measured, runs share no GPU, and on CPUs they go one by
    one; so do runs that are several processes themselves.
    """
    runtimes = [task.config.runtime for task in asked]
    slots = max((runtime.slots or 1 for runtime in runtimes), default=1)
    if all(runtime.device == "cpu" for runtime in runtimes):
        gpus = 0
    if jobs is None:
        jobs = 1 if slots > 1 or (timed and not gpus) else gpus or cores
    count = max(1, min(jobs, len(asked)))
    threads = max(1, cores // count)
    forked = sys.platform == "linux" and not gpus
    return tuple(Place(threads, _gpu(index, gpus) if slots == 1 else {}, forked) for index in range(count))


def _gpu(index: int, gpus: int) -> dict[str, str]:
    """A run's own GPU, in turn, of those that this process may see."""
    if gpus < 2:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(str(gpu) for gpu in range(gpus))
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[index % gpus]}
