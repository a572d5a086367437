"""What a study still has to train, and where it stands. Reads run folders and the claims beside them; trains nothing.

A run is claimed, by a lock on its log, by the process that trains it for a study. The kernel releases the lock however
that process ends, so nothing is started twice and nothing stays locked.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gcpsl.config import Config, override
from gcpsl.studies.base import Study
from gcpsl.studies.matching import Found, best_of, find_runs, run_key

LOGS = "study-logs"
BEGUN, FAILED = "== begun ", "== failed"
"""What a process writes into its run's log when it begins, and at its end where that is a failure."""


@dataclass(frozen=True)
class Task:
    """One run that a study needs, for one of its rows and any other that is the same."""

    rows: tuple[str, ...]
    seed: int
    config: Config
    key: str

    @property
    def title(self) -> str:
        return f"{self.rows[0]} seed {self.seed}"

    @property
    def path(self) -> Path:
        """Where a new run goes. Its key is in the name, so that equal names are equal runs."""
        assert self.config.run.name is not None
        return self.config.run.root / self.config.run.name

    @property
    def log(self) -> Path:
        """What the run says while it trains; its lock is the claim."""
        return self.config.run.root / LOGS / f"{self.key[:12]}.log"


@dataclass(frozen=True)
class Standing:
    """A task and the run that serves it, if there is one."""

    task: Task
    run: Found | None
    claimed: bool = False
    failure: str | None = None
    """What the last attempt said, if it failed."""

    @property
    def status(self) -> str:
        """finished, running, failed, interrupted or missing."""
        if self.run is not None and self.run.status != "interrupted":
            return self.run.status
        if self.claimed:
            return "running"
        if self.failure is not None:
            return "failed"
        return "missing" if self.run is None else "interrupted"

    @property
    def epochs(self) -> int:
        return 0 if self.run is None else self.run.epochs

    @property
    def epochs_left(self) -> int:
        return self.task.config.train.epochs - self.epochs


def study_root(study: Study) -> Path:
    """Where its runs go and are looked for."""
    return study.rows[0].config.run.root


def tasks(study: Study, seeds: Sequence[int]) -> tuple[Task, ...]:
    """Every run that a study needs, each once: the first seed of all rows first."""
    needed: dict[str, Task] = {}
    for seed in seeds:
        for row in study.rows:
            config = row.seeded(seed)
            key = run_key(config)
            if key in needed:
                known = needed[key]
                needed[key] = Task((*known.rows, row.name), seed, known.config, key)
            else:
                name = f"{row.name}-seed-{seed}-{key[:8]}"
                placed = override(config, f"run.root={study_root(study)}", f"run.name={name}")
                needed[key] = Task((row.name,), seed, placed, key)
    return tuple(needed.values())


def standings(asked: Sequence[Task], root: Path) -> tuple[tuple[Standing, ...], list[str]]:
    """How far each task is, and what is wrong with runs that can't be read."""
    runs, unreadable = find_runs(root)
    best = best_of(runs)
    found = tuple(Standing(task, best.get(task.key), is_claimed(task.log), failure_of(task.log)) for task in asked)
    return found, unreadable


def failure_of(log: Path) -> str | None:
    """The message of the last attempt, if that one failed and could still say so."""
    if not log.exists():
        return None
    _, _, said = log.read_text(errors="replace").rpartition(BEGUN)
    said, failed, _ = said.partition(f"\n{FAILED}")
    if not failed:
        return None
    _, marked, message = said.rpartition("gcpsl: ")
    return (message if marked else said).strip()


@contextmanager
def claimed(log: Path) -> Iterator[bool]:
    """Hold a run's claim inside the block; False if another process has it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def is_claimed(log: Path) -> bool:
    if not log.exists():
        return False
    with claimed(log) as free:
        return not free
