"""Starting a run on several processes, and finding its folder again when they are started anew."""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from gcpsl import environment
from gcpsl.config import Config, override
from gcpsl.errors import INTERRUPTED, ConfigError, DataError, RunError
from gcpsl.ranks import Ranks
from gcpsl.runs import RunFolder, list_runs

START = "the start of the run"
SAID_WHY = (ConfigError.exit_code, DataError.exit_code, RunError.exit_code, INTERRUPTED)  # starting again won't help


def agreed_folder(config: Config, ranks: Ranks) -> RunFolder:
    """The run's folder, on all ranks the one that the first finds or makes."""
    if ranks.rank == 0:
        folder = _folder(config)
        ranks.meet(START, str(folder.path.absolute()))
        return folder
    return RunFolder.open(Path(ranks.meet(START).words[0]))


def refuse_existing(config: Config) -> None:
    """Before anything is loaded: a run of that name may be there already."""
    if config.run.name and environment.launch() is None:
        RunFolder.refuse_existing(config.run.root / config.run.name)


def _folder(config: Config) -> RunFolder:
    """Where this launch has been training already, or else a new folder."""
    launch = environment.launch()
    for run in list_runs(config.run.root) if launch else []:
        if (run.read_json("environment.json") or {}).get("launch") == launch and not run.read_json("summary.json"):
            return run
    return RunFolder.create(with_absolute_paths(config), environment.describe())


def with_absolute_paths(config: Config) -> Config:
    """As it is stored: the same files, from whatever folder the run is continued."""
    root, file = config.data.root, config.partition.file
    changes = [f"data.root={root.absolute()}"] if root else []
    return override(config, *changes, *([f"partition.file={file.absolute()}"] if file else []))


def start_slots(config: Config, arguments: Sequence[str]) -> None:
    """Run this command as the ranks that `runtime.slots` asks for, and exit as they do.

    Returns where one process is enough, or where this is one of the ranks.
    """
    slots = config.runtime.slots or 1
    if slots > 1 and "WORLD_SIZE" not in os.environ:
        sys.exit(_supervise(slots, config, arguments))


def _supervise(slots: int, config: Config, arguments: Sequence[str]) -> int:
    """torchrun's launcher on this machine. When a rank dies all start again, from the last checkpoint."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from gcpsl.runtimes.eager import choose_device
    from gcpsl.runtimes.slots import refuse_sharing_gpus

    if choose_device(config.runtime).type == "cuda":
        refuse_sharing_gpus(slots)
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters of it is said below
    os.environ.setdefault("OMP_NUM_THREADS", str(config.runtime.threads or max(1, (os.cpu_count() or 1) // slots)))
    shape = LaunchConfig(
        1, 1, slots, run_id=str(uuid.uuid4()), rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0
    )
    for left in reversed(range(config.runtime.restarts + 1)):
        try:
            elastic_launch(shape, sys.executable)("-m", "gcpsl", *arguments)
        except SignalException:
            return INTERRUPTED
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode in SAID_WHY:
                return failure.exitcode
            how = f"by signal {-failure.exitcode}" if failure.exitcode < 0 else f"with exit code {failure.exitcode}"
            then = f"all start again from the last checkpoint ({left} more times)" if left else "giving up"
            sys.stderr.write(f"gcpsl: rank {rank} ended {how}; {then}\n")
        else:
            return 0
    return RunError.exit_code
