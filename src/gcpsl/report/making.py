"""A report from run folders: collected, tabulated, drawn, and written into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gcpsl.errors import ConfigError
from gcpsl.report import canvas, fleet
from gcpsl.report.canvas import Figure, Missing, Picture, picture
from gcpsl.report.collect import collect
from gcpsl.report.comparisons import comparisons
from gcpsl.report.curves import curves
from gcpsl.report.folder import PAGE, prepare, write
from gcpsl.report.grid import Sheet
from gcpsl.report.maps import maps
from gcpsl.report.overview import overview
from gcpsl.report.page import Chapter, Page, html
from gcpsl.report.paper_figures import paper_figures
from gcpsl.report.provenance import provenance
from gcpsl.report.sections import OTHERS, Section, sections
from gcpsl.report.sheets import files
from gcpsl.report.tables import table
from gcpsl.studies import Study, paper_studies
from gcpsl.studies.own import find_study

RESERVED = (OTHERS, "runs", "comparisons")


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
    studies = _studies(asked)
    runs = collect(asked.runs)
    prepare(folder)
    parts = sections(studies, runs, compared=_printed(asked))
    sheets = {part.study.name: table(part) for part in parts}
    said, origins = comparisons(parts), provenance(runs.groups, parts)
    pictures, undrawn = _pictures(parts, asked)
    left_out = (*runs.left_out, *undrawn)
    made = [*sheets.values(), *([said] if said else []), origins]
    page = Page(_title(asked), _chapters(parts, sheets, said, pictures), origins, left_out, asked.settings)
    write(folder, _files(made, pictures, html(page)), {"program": "gcpsl report", "left_out": list(left_out)})
    return Made(
        folder / PAGE,
        sum(len(group.runs) for group in runs.groups),
        tuple(sheet.name for sheet in made),
        tuple(one.figure.name for one in pictures),
        left_out,
    )


def _studies(asked: Asked) -> tuple[Study, ...]:
    sources = asked.studies or tuple(study.name for study in paper_studies())
    studies = tuple(find_study(source, smoke=asked.smoke).changed(*asked.settings) for source in sources)
    names = [*RESERVED, *(study.name for study in studies)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"--study: two tables would be called '{twice}'; rename the study's file, or name it once")
    return studies


def _printed(asked: Asked) -> frozenset[str]:
    """The studies beside which the paper's values stand: they are of its own settings, not of a smoke variant's."""
    own = {study.name for study in paper_studies()}
    return frozenset() if asked.smoke else frozenset(own & set(asked.studies) if asked.studies else own)


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
    undrawn = (f"figure '{one.title}' ({one.name}): {one.why}" for one in wanted if isinstance(one, Missing))
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
            figures += curves(part)
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


def _files(made: Sequence[Sheet], pictures: Sequence[Picture], page: str) -> dict[str, bytes]:
    """Every file's name and content."""
    content = {
        f"tables/{sheet.name}.{ending}": text.encode() for sheet in made for ending, text in files(sheet).items()
    }
    for one in pictures:
        content |= {f"figures/{one.figure.name}.png": one.png, f"figures/{one.figure.name}.svg": one.svg.encode()}
    return {**content, PAGE: page.encode()}
