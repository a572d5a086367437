"""Which runs there are: finished ones grouped by config over seeds, and what is left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gcpsl.config import Config
from gcpsl.errors import ConfigError, GcpslError
from gcpsl.records import EpochRecord, Summary
from gcpsl.studies import Finished, Found, Row, best_of, find_runs, finished, run_key


@dataclass(frozen=True)
class Run:
    """A finished run, read once."""

    found: Found
    summary: Summary
    records: tuple[EpochRecord, ...]

    @property
    def config(self) -> Config:
        return self.found.config

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def path(self) -> Path:
        return self.found.folder.path

    def under(self, config: Config) -> Finished:
        """What measures are read from, with a row's own targets."""
        return Finished(config, self.summary, self.records)


@dataclass(frozen=True)
class Group:
    """The finished runs of one config, a run per seed."""

    key: str
    runs: tuple[Run, ...]

    @property
    def config(self) -> Config:
        return self.runs[0].config

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)


@dataclass(frozen=True)
class Collected:
    """All that was found; `left_out` has a line per run that no number comes from."""

    groups: tuple[Group, ...]
    left_out: tuple[str, ...]

    def of(self, config: Config) -> Group | None:
        """The runs of a config, whatever their seeds."""
        key = row_key(config)
        return next((group for group in self.groups if group.key == key), None)


def row_key(config: Config) -> str:
    """Equal for configs that differ in their seed alone."""
    return run_key(config.model_copy(update={"seed": 0}))


def collect(places: Sequence[Path]) -> Collected:
    """The runs in these folders and anywhere below them. A run counts once it has finished."""
    if not places:
        raise ConfigError("no runs are named; give run folders, or folders that hold them, as in: gcpsl report runs")
    found, left_out = _found(places)
    if not found and not left_out:
        raise ConfigError(
            f"no run folders in {', '.join(repr(str(place)) for place in places)}; give run folders, or folders that "
            "hold them, as `gcpsl train` and `gcpsl study run` make them"
        )
    taken = {id(run) for run in best_of(found).values()}
    groups: dict[str, list[Run]] = {}
    for one in found:
        why_not = _unfinished(one) if one.status != "finished" else None if id(one) in taken else _repeated(one, found)
        read = None if why_not else _read(one)
        if isinstance(read, Run):
            groups.setdefault(row_key(one.config), []).append(read)
        else:
            left_out.append(why_not or str(read))
    if not groups:
        raise ConfigError("none of the runs can be reported:\n" + "\n".join(left_out))
    ordered = {key: tuple(sorted(runs, key=lambda run: run.seed)) for key, runs in groups.items()}
    return Collected(tuple(Group(key, runs) for key, runs in ordered.items()), tuple(left_out))


def _found(places: Sequence[Path]) -> tuple[list[Found], list[str]]:
    """Every run once, however often its folder is given."""
    found: dict[Path, Found] = {}
    unreadable: list[str] = []
    for place in places:
        if not place.is_dir():
            what = "is a file" if place.exists() else "does not exist"
            raise ConfigError(f"'{place}' {what}; give run folders, or folders that hold them")
        runs, damaged = find_runs(place)
        found |= {run.folder.path.resolve(): run for run in runs}
        unreadable += [why for why in damaged if why not in unreadable]
    return list(found.values()), unreadable


def _unfinished(run: Found) -> str:
    epochs = f"{run.epochs} of {run.config.train.epochs} epochs"
    return f"{run.folder.path}: {'still running' if run.status == 'running' else 'unfinished'}, {epochs}"


def _repeated(run: Found, others: Iterable[Found]) -> str:
    same = best_of(other for other in others if other.key == run.key)[run.key]
    return f"{run.folder.path}: the same settings and seed as {same.folder.path}, which is taken"


def _read(found: Found) -> Run | str:
    """The run, or why it can't be read."""
    try:
        read = finished(found, Row("run", found.config))
    except (GcpslError, TypeError, KeyError) as error:
        return f"{found.folder.path}: can't be read by this version: {error}"
    if not read.records:
        return f"{found.folder.path}: its epochs.jsonl is missing or empty"
    return Run(found, read.summary, read.records)
