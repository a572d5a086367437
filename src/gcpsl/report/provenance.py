"""Where each run comes from: its commit, device and versions, as its folder says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gcpsl.report.collect import Group, Run
from gcpsl.report.grid import Column, Grid, GridRow, Sheet
from gcpsl.report.sections import Section
from gcpsl.summary_view import duration

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Environment:
    """What `environment.json` says of a run."""

    device: str
    gcpsl: str
    torch: str
    python: str
    commit: str


@dataclass(frozen=True)
class Origin:
    """A run of the report."""

    run: str
    rows: tuple[str, ...]
    seed: int
    epochs: int
    test_accuracy: float
    wall_s: float
    device: str
    commit: str
    gcpsl: str
    torch: str
    python: str
    key: str


def environment_of(run: Run) -> Environment:
    said = run.found.folder.read_json("environment.json") or {}
    packages = said.get("packages") or {}
    asked_for_cpu = run.config.runtime.device == "cpu"
    device = (None if asked_for_cpu else said.get("gpu")) or said.get("cpu") or UNKNOWN
    return Environment(
        str(device),
        str(packages.get("gcpsl") or UNKNOWN),
        str(packages.get("torch") or UNKNOWN),
        str(said.get("python") or UNKNOWN),
        str(said.get("commit") or UNKNOWN),
    )


def provenance(groups: Iterable[Group], sections: Iterable[Section]) -> Sheet:
    """A line per run that the report's numbers come from."""
    origins = tuple(_origins(groups, tuple(sections)))
    columns = [Column(name, long=True) for name in ("Run", "Serves")]
    columns += [Column(name, number=True) for name in ("Seed", "Epochs", "Test (%)", "Time")]
    columns += [Column("Device"), Column("Commit"), Column("Versions", long=True)]
    rows = tuple(
        GridRow(
            (
                one.run,
                ", ".join(one.rows),
                str(one.seed),
                str(one.epochs),
                f"{one.test_accuracy:.2f}",
                duration(one.wall_s),
                one.device,
                one.commit[:12],
                f"gcpsl {one.gcpsl}, torch {one.torch}, Python {one.python}",
            )
        )
        for one in origins
    )
    return Sheet("runs", "The runs behind the numbers", Grid(tuple(columns), rows), origins)


def _origins(groups: Iterable[Group], sections: tuple[Section, ...]) -> Iterator[Origin]:
    for group in groups:
        served = [f"{s.study.name}/{line.row.name}" for s in sections for line in s.lines if line.group is group]
        for run in group.runs:
            said = environment_of(run)
            yield Origin(
                run=str(run.path),
                rows=tuple(served),
                seed=run.seed,
                epochs=run.summary.epochs,
                test_accuracy=run.summary.test_accuracy,
                wall_s=run.summary.wall_s,
                device=said.device,
                commit=said.commit,
                gcpsl=said.gcpsl,
                torch=said.torch,
                python=said.python,
                key=run.found.key,
            )
