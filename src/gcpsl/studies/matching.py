"""A run is known by its config: which rows of which studies it serves, and where a row's runs lie.

Everything in a config counts that can change results. Names, places, clocks and targets don't: a run trained for one
study serves every other that has the same row. Reads run folders and trains nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gcpsl.config import Config
from gcpsl.errors import GcpslError, RunError
from gcpsl.records import EpochRecord, Summary
from gcpsl.runs import RunFolder
from gcpsl.runs_view import status
from gcpsl.studies.base import Row, Study
from gcpsl.studies.measures import Finished

# `run` is names, places, clocks and targets, all of which can be read from the epochs afterwards
UNCOUNTED = {"run": None, "runtime": ("timeout_s", "restarts")}
ROOT_IS_THE_DATA = ("npz",)
LABEL_AWARE_ONLY = ("start", "swaps", "measure", "composition_weight", "moves_max")


@dataclass(frozen=True)
class Entry:
    """A place in a study's table."""

    study: str
    row: str
    seed: int


@dataclass(frozen=True)
class Found:
    """A run folder and how far it is."""

    folder: RunFolder
    config: Config
    status: str
    epochs: int

    @property
    def key(self) -> str:
        return run_key(self.config)

    @property
    def usable(self) -> bool:
        """Whether it serves a study: an unfinished run that was stored without its checkpoints can't go on."""
        return self.status != "interrupted" or (self.folder.path / "checkpoints").is_dir()


def run_key(config: Config) -> str:
    """Equal for two configs whose runs would give the same results, and only for those."""
    return hashlib.sha256(json.dumps(_counted(config), sort_keys=True).encode()).hexdigest()


def serves(config: Config, studies: Iterable[Study]) -> tuple[Entry, ...]:
    """Every place in these studies that a run with this config fills, whatever its seed."""
    seedless = _row_key(config)
    return tuple(
        Entry(study.name, row.name, config.seed)
        for study in studies
        for row in study.rows
        if _row_key(row.config) == seedless
    )


def find_runs(root: Path) -> tuple[list[Found], list[str]]:
    """All runs anywhere below a folder, and what is wrong with those that can't be read."""
    found, unreadable = [], []
    for path in _run_folders(root):
        folder = RunFolder(path)
        try:
            found.append(Found(folder, folder.config(), status(folder), len(folder.epochs())))
        except GcpslError as error:
            unreadable.append(str(error))
    return found, unreadable


def best_of(runs: Iterable[Found]) -> dict[str, Found]:
    """One run per key: a finished one if there is, else one that is going on, else the one that came farthest."""
    order = ("finished", "running", "interrupted")
    best: dict[str, Found] = {}
    usable = [run for run in runs if run.usable]
    for run in sorted(usable, key=lambda run: (order.index(run.status), -run.epochs, run.folder.path)):
        best.setdefault(run.key, run)
    return best


def finished(run: Found, row: Row) -> Finished:
    """What measures are read from: the run's numbers, and the row's targets."""
    summary = run.folder.read_json("summary.json")
    if summary is None:
        raise RunError(f"the run '{run.folder.path}' has not finished; go on with: gcpsl runs resume {run.folder.path}")
    records = tuple(EpochRecord.from_json(record) for record in run.folder.epochs())
    return Finished(row.config, Summary.from_json(summary), records)


def _row_key(config: Config) -> str:
    return run_key(config.model_copy(update={"seed": 0}))


def _counted(config: Config) -> dict[str, Any]:
    """The settings that can change results."""
    values = config.model_dump(mode="json")
    for section, names in UNCOUNTED.items():
        if names is None:
            del values[section]
        else:
            values[section] = {name: value for name, value in values[section].items() if name not in names}
    values["data"]["root"] = _absolute(config.data.root) if config.data.name in ROOT_IS_THE_DATA else None
    values["partition"]["file"] = _absolute(config.partition.file)
    if config.schedule.draw == "all":
        values["clustering"] = None
    elif config.clustering.rule in ("random", "size_balanced"):
        values["clustering"] = {
            name: value for name, value in values["clustering"].items() if name not in LABEL_AWARE_ONLY
        }
    return values


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _run_folders(root: Path) -> Iterator[Path]:
    """Folders that hold a run, in order; nothing is looked for inside one."""
    for place, folders, files in os.walk(root):
        if "config.toml" in files and "environment.json" in files:
            folders.clear()
            yield Path(place)
        folders.sort()
