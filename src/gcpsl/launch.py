"""Starting a run on several processes, and finding its folder again when they are started anew."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from gcpsl import environment
from gcpsl.config import Config, override
from gcpsl.ranks import Ranks
from gcpsl.runs import RunFolder, list_runs

START = "the start of the run"


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
    """Become torchrun with as many processes as `runtime.slots` asks, each of which runs this command again.

    Returns where one process is enough, or torchrun has started this one.
    """
    slots = config.runtime.slots or 1
    if slots == 1 or "WORLD_SIZE" in os.environ:
        return
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--rdzv-id={uuid.uuid4()}"]
    shape = [f"--nproc-per-node={slots}", f"--max-restarts={config.runtime.restarts}"]
    os.environ.setdefault("OMP_NUM_THREADS", str(config.runtime.threads or max(1, (os.cpu_count() or 1) // slots)))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *torchrun, *shape, "-m", "gcpsl", *arguments])
