"""The command line: verbs only. Each imports what it needs when it runs, so help and plans stay quick."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from gcpsl import __version__, cli_report, cli_study
from gcpsl.errors import INTERRUPTED, ConfigError, GcpslError

app = typer.Typer(
    name="gcpsl",
    help="Clustered parallel split learning: train one model across many devices that keep their data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
runs_app = typer.Typer(help="List, show and resume runs.", no_args_is_help=True, rich_markup_mode=None)
data_app = typer.Typer(help="Download data sets, and look at partitions.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(runs_app, name="runs")
app.add_typer(data_app, name="data")
app.add_typer(cli_study.app, name="study")
app.command("report")(cli_report.report)

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [KEY=VALUE]...",
        help="A TOML file or preset (none: the built-in quickstart), then settings such as schedule.workloads=8.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Root = Annotated[Path, typer.Option("--root", help="The folder that holds the run folders.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gcpsl {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before a verb."""


@app.command()
def train(settings: Settings = None, as_json: AsJson = False) -> None:
    """Train one run; with runtime.slots, or below torchrun, on several processes."""
    from gcpsl.launch import start_slots

    config = _load(settings)
    start_slots(config, sys.argv[1:])
    from gcpsl.display import PatientConsole, make_display
    from gcpsl.training import Pieces
    from gcpsl.training import train as start

    _end(start(config, Pieces(), make_display(PatientConsole(), as_json=as_json)).finished)


@app.command()
def plan(
    settings: Settings = None,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", help="A CSV of client,count[,class counts...] in place of the config's data."),
    ] = None,
    workloads: Annotated[str | None, typer.Option("-n", "--workloads", help="The Ns to compare, as in 2,4,8.")] = None,
    rules: Annotated[
        str | None, typer.Option("--rules", help="The rules to compare, as in random,label_aware.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw the plan into this PNG, SVG or PDF.")] = None,
    as_json: AsJson = False,
) -> None:
    """Answer without training: participation, schedule, payload and memory of each rule and N."""
    from gcpsl.planner_view import render, save_plot, to_json
    from gcpsl.planning import plan_settings

    config = _load(settings)
    answer = plan_settings(
        config, fleet, _numbers(workloads), [rule.strip() for rule in rules.split(",")] if rules is not None else None
    )
    if plot:
        save_plot(answer, plot)
    if as_json:
        typer.echo(to_json(answer))
    else:
        _console().print_whole(render(answer))


@runs_app.command("list")
def runs_list(root: Root = Path("runs"), as_json: AsJson = False) -> None:
    """List the runs of a folder, oldest first."""
    from gcpsl.runs import list_runs
    from gcpsl.runs_view import runs_json, runs_table

    if root != Path("runs") and not root.is_dir():
        raise ConfigError(f"--root = '{root}' is no folder; give the one that holds the run folders")
    runs = list_runs(root)
    if as_json:
        _print_json(runs_json(runs))
    elif runs:
        _console().print_whole(runs_table(runs))
    else:
        typer.echo(f"no runs in '{root}'; start one with: gcpsl train")


@runs_app.command("show")
def runs_show(run: str, root: Root = Path("runs"), as_json: AsJson = False) -> None:
    """Show one run: its settings that differ from the defaults, its epochs and its summary."""
    from gcpsl.runs import RunFolder
    from gcpsl.runs_view import run_json, run_view

    folder = RunFolder.open(_run_path(run, root))
    if as_json:
        _print_json(run_json(folder))
    else:
        _console().print_whole(run_view(folder))


@runs_app.command("resume")
def runs_resume(
    run: str,
    moved: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Where its data lies now: data.root=PATH, partition.file=PATH."),
    ] = None,
    root: Root = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Continue an interrupted run; it ends as if it had never stopped."""
    from gcpsl.launch import start_slots
    from gcpsl.runs import RunFolder

    path = _run_path(run, root)
    start_slots(RunFolder.open(path).config(), sys.argv[1:])
    from gcpsl.display import PatientConsole, make_display
    from gcpsl.training import Pieces, resume

    _end(resume(path, Pieces(), make_display(PatientConsole(), as_json=as_json), moved or ()).finished)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100 or fashion-mnist.")],
    root: Annotated[Path | None, typer.Option("--root", help="Where to; else $GCPSL_DATA, else the cache.")] = None,
    mirror: Annotated[str | None, typer.Option("--mirror", help="Another address that serves the same files.")] = None,
) -> None:
    """Download a data set from its official address; an interrupted download goes on where it stopped."""
    from gcpsl.data.download import get
    from gcpsl.data.folders import data_root
    from gcpsl.display import download_progress

    with download_progress(_console()) as progress:
        folder = get(name, data_root(root), base_url=mirror, progress=progress)
    typer.echo(f"{name} is in {folder}")


@data_app.command("show")
def data_show(
    settings: Settings = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also draw the partition into this PNG, SVG or PDF.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a config's samples are dealt to clients."""
    from dataclasses import asdict

    from gcpsl.data import federate
    from gcpsl.data.picture import save_picture
    from gcpsl.data.show import render, summarise

    config = _load(settings)
    data = federate(config)
    summary = summarise(config, data)
    if plot:
        save_picture(summary, data.fleet, plot)
    if as_json:
        _print_json(asdict(summary))
    else:
        _console().print_whole(render(summary, data.fleet))


def _run_path(run: str, root: Path) -> Path:
    """A run by its folder, or by its name below the root."""
    if not run:
        raise ConfigError("'' names no run; see them with: gcpsl runs list")
    given = Path(run)
    return given if (given / "config.toml").is_file() else root / run


def _load(settings: list[str] | None) -> Any:
    from gcpsl import config

    words = settings or []
    files = [word for word in words if "=" not in word]
    if len(files) > 1:
        raise ConfigError(f"'{files[1]}' is neither a second file nor key=value; give one FILE, then settings")
    return config.load(files[0] if files else None, [word for word in words if "=" in word])


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--workloads = '{text}': write whole numbers, as in 2,4,8") from None


def _console() -> Any:
    from gcpsl.display import PatientConsole

    return PatientConsole()


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def _end(finished: bool) -> None:
    if not finished:
        raise typer.Exit(INTERRUPTED)


def _name_in_warnings(rank: str) -> None:
    """Python's warnings and log messages say whose they are, as torch's own do."""
    plain = warnings.formatwarning
    warnings.formatwarning = lambda *args, **options: f"[rank {rank}] {plain(*args, **options)}"
    if logging.lastResort:
        logging.lastResort.setFormatter(logging.Formatter(f"[rank {rank}] %(message)s"))


def main() -> None:
    """The program: exit codes 0, 2 wrong setting, 3 data, 4 run, 5 another rank of it, 130 interrupted."""
    rank = os.environ.get("RANK", "")
    if rank not in ("", "0"):
        _name_in_warnings(rank)
    status: object = 0
    try:
        app()
    except GcpslError as error:
        typer.echo(f"gcpsl{f' [rank {rank}]' if rank else ''}: {error}", err=True)
        status = error.exit_code
    except SystemExit as end:
        status = end.code
    if rank:
        _leave(status)
    sys.exit(status)  # type: ignore[arg-type]


def _leave(status: object) -> None:
    """End a rank, all of whose work is done, without the interpreter's own end.

    There torch.distributed's threads abort one process in a hundred or so, and torchrun would take that for a failure.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))
