"""The verb `gcpsl report`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="RUNS... [KEY=VALUE]...",
        help="Run folders, or folders of them at any depth; then the settings that `gcpsl study run` was given, or "
        "data.root=DIR for where the runs' data lies now.",
        show_default=False,
    ),
]


def report(
    words: Words,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write; made if it is missing.")],
    study: Annotated[
        list[str] | None,
        typer.Option("--study", help="A study to tabulate, by name or file; again for more. None: all the paper's."),
    ] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="The runs are of the studies' smoke variants.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Make tables, figures and a page from run folders, with the paper's values beside."""
    from gcpsl.report.making import Asked, make_report

    settings = [word for word in words if "=" in word and not Path(word).exists()]
    runs = [Path(word) for word in words if word not in settings]
    made = make_report(Asked(tuple(runs), tuple(study or ()), tuple(settings), smoke), output)
    if as_json:
        typer.echo(json.dumps({**asdict(made), "page": str(made.page)}, indent=2))
        return
    for line in made.left_out:
        typer.echo(f"left out: {line}")
    count = f"{made.runs} run{'s' if made.runs > 1 else ''}"
    typer.echo(f"{len(made.tables)} tables and {len(made.figures)} figures of {count}: {made.page}")
