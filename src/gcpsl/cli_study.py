"""The verbs of `gcpsl study`. Each imports what it needs when it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gcpsl.errors import INTERRUPTED, ConfigError, RunError

if TYPE_CHECKING:
    from gcpsl.studies import Study
    from gcpsl.studies.runner import Outcome
    from gcpsl.studies.tasks import Task

app = typer.Typer(
    help="Train the many runs that make a table: the paper's studies, or your own.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(metavar="STUDY", help="A name from `gcpsl study list`, or a .py or .toml file.")]
Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings for every row, as in data.root=DIR.", show_default=False),
]
Rows = Annotated[str | None, typer.Option("--rows", help="The rows to take, as in gpsl,random-8.")]
Seeds = Annotated[str | None, typer.Option("--seeds", help="The seeds to take, as in 0,1,2.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="A variant that trains in seconds, to see that all works.")]
Root = Annotated[Path | None, typer.Option("--root", help="Where run folders are and go; the same as run.root.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command("list")
def study_list(as_json: AsJson = False) -> None:
    """List the paper's studies."""
    from gcpsl.display import PatientConsole
    from gcpsl.studies import paper_studies
    from gcpsl.studies.status import studies_json, studies_table

    if as_json:
        typer.echo(json.dumps(studies_json(paper_studies()), indent=2))
    else:
        PatientConsole().print_whole(studies_table(paper_studies()))


@app.command("run")
def study_run(
    study: Name,
    settings: Changes = None,
    rows: Rows = None,
    seeds: Seeds = None,
    smoke: Smoke = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Runs at once; by default what the machine gains by.")
    ] = None,
    root: Root = None,
) -> None:
    """Train what a study lacks. Runs that exist are reused, interrupted ones go on, failed ones don't stop the rest."""
    from gcpsl.display import PatientConsole
    from gcpsl.studies.tasks import standings, study_root

    asked, tasks = _asked(study, settings, rows, seeds, root, smoke=smoke)
    found, unreadable = standings(tasks, study_root(asked))
    for why in unreadable:
        typer.echo(f"gcpsl: left out, as it can't be read: {why}", err=True)
    todo = [one.task for one in found if one.status != "finished"]
    if not todo:
        typer.echo(f"All {len(found)} runs have finished already.")
        return
    from gcpsl import devices
    from gcpsl.studies.places import places
    from gcpsl.studies.progress import make_study_display
    from gcpsl.studies.runner import Runner

    gpus, cores = devices.gpus(), devices.cores()
    at_once = places(todo, timed=asked.timed, jobs=jobs, gpus=gpus, cores=cores)
    _end(Runner(study_root(asked), at_once, make_study_display(PatientConsole())).run(found))


@app.command("status")
def study_status(
    study: Name,
    settings: Changes = None,
    rows: Rows = None,
    seeds: Seeds = None,
    smoke: Smoke = False,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a study is: what is finished, running, interrupted or missing."""
    from gcpsl.display import PatientConsole
    from gcpsl.studies.status import status_json, status_view
    from gcpsl.studies.tasks import standings, study_root

    asked, tasks = _asked(study, settings, rows, seeds, root, smoke=smoke)
    found, unreadable = standings(tasks, study_root(asked))
    if as_json:
        typer.echo(json.dumps(status_json(asked, found, unreadable), indent=2))
    else:
        PatientConsole().print_whole(status_view(asked, found, unreadable))


def _asked(
    name: str, settings: list[str] | None, rows: str | None, seeds: str | None, root: Path | None, *, smoke: bool
) -> tuple[Study, tuple[Task, ...]]:
    """The study with its settings changed, and the runs that these rows and seeds need."""
    from gcpsl.studies.own import find_study
    from gcpsl.studies.tasks import tasks

    changes = [*(settings or []), *([f"run.root={root}"] if root else [])]
    wrong = next((word for word in changes if "=" not in word), None)
    if wrong:
        raise ConfigError(f"'{wrong}' is no setting; write key=value, and rows as in --rows gpsl,random-8")
    chosen = None if rows is None else [row.strip() for row in rows.split(",")]
    study = find_study(name, smoke=smoke).only(chosen).changed(*changes)
    return study, tasks(study, study.seeds if seeds is None else _numbers(seeds))


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds = '{text}': write whole numbers, as in 0,1,2") from None


def _end(outcome: Outcome) -> None:
    """Say what is left, and exit as it went."""
    done = outcome.reused + outcome.trained
    if outcome.stopped:
        typer.echo(f"Stopped; {outcome.left} runs are left. The same command goes on.")
        raise typer.Exit(INTERRUPTED)
    if outcome.failures:
        by_message: dict[str, list[str]] = {}
        for failure in outcome.failures:
            by_message.setdefault(failure.message, []).append(f"{failure.task.title} (log: {failure.task.log})")
        lines = [f"{', '.join(runs)}: {message}" for message, runs in by_message.items()]
        raise RunError(f"{len(outcome.failures)} of {done + len(outcome.failures)} runs failed\n" + "\n".join(lines))
    typer.echo(f"All {done} runs have finished." if done != 1 else "The run has finished.")
