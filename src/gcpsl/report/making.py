"""A report from run folders: collected, tabulated, drawn, and written into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gcpsl.errors import ConfigError
from gcpsl.report import canvas, fleet
from gcpsl.report.canvas import Figure, Missing, Picture, picture
from gcpsl.report.collect import Collected, collect
from gcpsl.report.comparisons import comparisons
from gcpsl.report.curves import accuracy_against_all, drift
from gcpsl.report.folder import write
from gcpsl.report.grid import Sheet
from gcpsl.report.maps import maps
from gcpsl.report.overview import overview
from gcpsl.report.page import Chapter, Page, html
from gcpsl.report.paper_figures import paper_figures
from gcpsl.report.provenance import provenance
from gcpsl.report.sections import Section, sections
from gcpsl.report.sheets import files
from gcpsl.report.tables import table
from gcpsl.studies import Study, paper_studies
from gcpsl.studies.own import find_study


@dataclass(frozen=True)
class Asked:
    """What a report is of. No `studies` are all of the paper's."""

    runs: tuple[Path, ...]
    studies: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    smoke: bool = False


@dataclass(frozen=True)
class Made:
    """What a report holds, for whoever asked for it."""

    page: Path
    runs: int
    tables: tuple[str, ...]
    figures: tuple[str, ...]
    left_out: tuple[str, ...]
    """Runs that no number comes from, figures that no run has data for, and why."""


def make_report(asked: Asked, folder: Path) -> Made:
    """Writes tables, figures and the page. Without matplotlib the figures are left out, and that is said."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"'{folder}' is a file; name a folder for the report with -o")
    studies = tuple(_study(name, asked) for name in asked.studies) or _paper_studies(asked)
    runs = collect(asked.runs)
    # what the paper prints is of its own settings, and a smoke variant's are others
    parts = sections(studies, runs, compared=not asked.smoke)
    sheets = {part.study.name: table(part) for part in parts}
    said, origins = comparisons(parts), provenance(runs.groups, parts)
    pictures, undrawn = _pictures(parts, asked)
    left_out = (*runs.left_out, *undrawn)
    made = [*sheets.values(), *([said] if said else []), origins]
    page = Page(_title(asked), _chapters(parts, sheets, said, pictures), origins, left_out, asked.settings)
    _write(folder, made, pictures, html(page), runs)
    return Made(
        folder / "index.html",
        sum(len(group.runs) for group in runs.groups),
        tuple(sheet.name for sheet in made),
        tuple(one.figure.name for one in pictures),
        left_out,
    )


def _study(name: str, asked: Asked) -> Study:
    return find_study(name, smoke=asked.smoke).changed(*asked.settings)


def _paper_studies(asked: Asked) -> tuple[Study, ...]:
    return tuple(_study(study.name, asked) for study in paper_studies())


def _title(asked: Asked) -> str:
    return "GCPSL report" + (" (smoke variants: the numbers mean nothing)" if asked.smoke else "")


def _pictures(parts: Sequence[Section], asked: Asked) -> tuple[tuple[Picture, ...], tuple[str, ...]]:
    """What can be drawn, and a line for each figure that can't."""
    try:
        canvas.available()
    except ConfigError as error:
        return (), (f"all figures: {error}",)
    moved = [setting for setting in asked.settings if setting.partition("=")[0].strip() in fleet.MOVABLE]
    wanted = [overview(), *(_papers(parts, asked)), *_of_sections(parts), *maps(parts, moved)]
    drawn = tuple(picture(figure) for figure in wanted if isinstance(figure, Figure))
    undrawn = (f"figure '{one.title}' ({one.name}): needs {one.needs}" for one in wanted if isinstance(one, Missing))
    return drawn, tuple(undrawn)


def _papers(parts: Sequence[Section], asked: Asked) -> list[Figure | Missing]:
    """The paper's figures, unless the report is of the user's own studies alone."""
    names = {study.name for study in paper_studies()}
    return paper_figures(parts) if not asked.studies or names & set(asked.studies) else []


def _of_sections(parts: Sequence[Section]) -> list[Figure | Missing]:
    """Curves of every section but those whose rows all stand in an earlier one."""
    figures: list[Figure | Missing] = []
    seen: set[str] = set()
    for part in parts:
        keys = {line.group.key for line in part.lines}
        if not keys <= seen:
            figures += [accuracy_against_all(part), drift(part)]
        seen |= keys
    return figures


def _chapters(
    parts: Sequence[Section], sheets: dict[str, Sheet], said: Sheet | None, pictures: Sequence[Picture]
) -> tuple[Chapter, ...]:
    """A chapter per section with its table and curves, between the paper's figures and the maps."""
    own = {f"{kind}-{part.study.name}": part.study.name for part in parts for kind in ("accuracy", "drift")}
    late = ("participation-map", "composition")
    first = tuple(one for one in pictures if one.figure.name not in {*own, *late})
    last = tuple(one for one in pictures if one.figure.name in late)
    middle = [
        Chapter(
            part.study.name.replace("-", " ").capitalize(),
            (sheets[part.study.name],),
            tuple(one for one in pictures if own.get(one.figure.name) == part.study.name),
        )
        for part in parts
    ]
    chapters = [Chapter("Overview", (), first), *middle]
    chapters += [Chapter("Comparisons", (said,), ())] if said else []
    chapters += [Chapter("Clients", (), last)] if last else []
    return tuple(chapter for chapter in chapters if chapter.sheets or chapter.pictures)


def _write(folder: Path, made: Sequence[Sheet], pictures: Sequence[Picture], page: str, runs: Collected) -> None:
    content = {
        f"tables/{sheet.name}.{ending}": text.encode() for sheet in made for ending, text in files(sheet).items()
    }
    for one in pictures:
        content |= {f"figures/{one.figure.name}.png": one.png, f"figures/{one.figure.name}.svg": one.svg.encode()}
    content["index.html"] = page.encode()
    write(folder, content, {"program": "gcpsl report", "left_out": list(runs.left_out)})
