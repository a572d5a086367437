"""One HTML page with all tables and figures inside it: no scripts, no fonts, nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from gcpsl import __version__
from gcpsl.report.canvas import Picture
from gcpsl.report.grid import Column, Grid, GridRow, Sheet
from gcpsl.report.style import GRID, INK, MUTED, SERIES, SURFACE

VARIABLES = {INK: "ink", MUTED: "muted", GRID: "line", SURFACE: "surface"} | {
    colour: f"s{i}" for i, colour in enumerate(SERIES)
}
SMALL_PANELS = 1


@dataclass(frozen=True)
class Chapter:
    title: str
    sheets: tuple[Sheet, ...]
    pictures: tuple[Picture, ...]

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    title: str
    chapters: tuple[Chapter, ...]
    runs: Sheet
    left_out: tuple[str, ...]
    settings: tuple[str, ...]


def html(page: Page) -> str:
    style = (resources.files("gcpsl.report") / "page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(page.title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            *_header(page),
            "<main>",
            *(line for chapter in page.chapters for line in _chapter(chapter)),
            *_left_out(page.left_out),
            *_runs(page.runs),
            "</main>",
            "</body>",
            "</html>\n",
        ]
    )


def _header(page: Page) -> Iterator[str]:
    anchors = [(chapter.anchor, chapter.title) for chapter in page.chapters]
    anchors += [("left-out", "Left out")] if page.left_out else []
    anchors.append(("provenance", "Runs"))
    yield "<header>"
    yield f"<h1>{escape(page.title)}</h1>"
    count = len(page.runs.records)
    made = f"{count} finished run{'s' if count > 1 else ''}; made by gcpsl {escape(__version__)}."
    yield f"<p>{made}{_changed(page.settings)}</p>"
    yield '<nav aria-label="Contents"><ul>'
    yield from (f'<li><a href="#{anchor}">{escape(title)}</a></li>' for anchor, title in anchors)
    yield "</ul></nav>"
    yield "</header>"


def _changed(settings: Sequence[str]) -> str:
    return f" Rows of studies are with <code>{escape(' '.join(settings))}</code>." if settings else ""


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield f'<section id="{chapter.anchor}">'
    yield f"<h2>{escape(chapter.title)}</h2>"
    for sheet in chapter.sheets:
        yield from _table(sheet)
    for picture in chapter.pictures:
        yield from _figure(picture)
    yield "</section>"


def _left_out(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield '<section id="left-out"><h2>Left out</h2>'
        yield "<div><p>Only finished runs count, and of equal ones with the same seed one.</p><ul>"
        yield from (f"<li>{escape(line)}</li>" for line in lines)
        yield "</ul></div></section>"


def _runs(sheet: Sheet) -> Iterator[str]:
    yield '<section id="provenance"><h2>Runs</h2>'
    yield from _table(sheet)
    yield "</section>"


def _table(sheet: Sheet) -> Iterator[str]:
    """Scrolls sideways by itself, also by keyboard, so that the page never does."""
    name = escape(sheet.name)
    yield f'<div id="{name}"><h3 id="{name}-title">{escape(sheet.title)}</h3>'
    yield f'<div class="scroll" role="region" aria-labelledby="{name}-title" tabindex="0">'
    yield f'<table aria-labelledby="{name}-title">'
    yield "<thead><tr>" + "".join(_heading(column) for column in sheet.grid.columns) + "</tr></thead>"
    yield "<tbody>"
    yield from _rows(sheet.grid)
    yield "</tbody></table></div>"
    if sheet.notes:
        yield '<ul class="notes">' + "".join(f"<li>{_indexed(note)}</li>" for note in sheet.notes) + "</ul>"
    yield "</div>"


def _heading(column: Column) -> str:
    return f'<th scope="col"{_aligned(column)}>{_indexed(column.heading)}</th>'


def _rows(grid: Grid) -> Iterator[str]:
    for row in grid.rows:
        if row.kind == "heading":
            cells = f'<th scope="rowgroup" colspan="{len(grid.columns)}">{escape(row.cells[0])}</th>'
        else:
            cells = "".join(_cell(row, i, column) for i, column in enumerate(grid.columns))
        kind = "" if row.kind == "plain" else f' class="{row.kind}"'
        yield f"<tr{kind}>{cells}</tr>"


def _cell(row: GridRow, index: int, column: Column) -> str:
    text = escape(row.cells[index])
    if index == 0:
        return f'<th scope="row"{_aligned(column)}>{text}</th>'
    return f"<td{_aligned(column)}>{f'<strong>{text}</strong>' if index in row.best else text}</td>"


def _aligned(column: Column) -> str:
    kinds = " ".join(kind for kind, has in (("number", column.number), ("long", column.long)) if has)
    return f' class="{kinds}"' if kinds else ""


def _indexed(text: str) -> str:
    """R85 and t85 with their index."""
    return re.sub(r"\b([Rt])(\d+(?:\.\d+)?|q)\b", r"<var>\1</var><sub>\2</sub>", escape(text))


def _figure(picture: Picture) -> Iterator[str]:
    """Panels beside each other, and below each other where the screen is narrow."""
    figure = picture.figure
    both = picture.narrow_svg != picture.svg
    size = "small" if len(figure.panels) == SMALL_PANELS else "wide"
    yield f'<figure id="{figure.name}" class="{"both" if both else "one"}">'
    yield f'<div class="{size}">{_inline(picture, picture.svg, "w")}</div>'
    if both:
        yield f'<div class="narrow">{_inline(picture, picture.narrow_svg, "n")}</div>'
    yield f"<figcaption><strong>{escape(figure.title)}.</strong> {_indexed(figure.caption)}</figcaption></figure>"


def _inline(picture: Picture, svg: str, prefix: str) -> str:
    """An SVG as part of the page: its size is the page's, its colours are variables, its names are its own."""
    figure = picture.figure
    body = svg[svg.index("<svg") :].strip()
    body = re.sub(r'^<svg([^>]*?) (?:width|height)="[^"]*"', r"<svg\1", body)
    body = re.sub(r'^<svg([^>]*?) (?:width|height)="[^"]*"', r"<svg\1", body)
    own = f"{prefix}-{figure.name}-"
    body = re.sub(r'\bid="', f'id="{own}', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{own}", body)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda found: _variable(found[0]), body)
    said = escape(f"{figure.title}. {figure.caption} {_panels(picture)}", quote=True)
    return body.replace("<svg", f'<svg role="img" aria-label="{said}"', 1)


def _variable(colour: str) -> str:
    return f"var(--{VARIABLES[colour]})" if colour in VARIABLES else colour


def _panels(picture: Picture) -> str:
    titles: Iterable[str] = (panel.title for panel in picture.figure.panels if panel.title)
    shown = "; ".join(titles)
    return f"Panels: {shown}." if shown else ""
