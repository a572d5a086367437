"""A table's four files: Markdown, LaTeX with booktabs, CSV and JSON. Knows sheets, not what is in them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields

from gcpsl.report.grid import Column, Grid, GridRow, Sheet

WIDE_COLUMNS = 8
LATEX_LONG = r">{\raggedright\arraybackslash}p{0.17\textwidth}"
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\u00a0": "~",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
}


def files(sheet: Sheet) -> dict[str, str]:
    """Each file's ending and text."""
    return {"md": markdown(sheet), "tex": latex(sheet), "csv": as_csv(sheet), "json": as_json(sheet)}


def markdown(sheet: Sheet) -> str:
    grid = sheet.grid
    marks = ["---:" if column.number else "---" for column in grid.columns]
    lines = [f"### {sheet.title}", "", _piped(column.heading for column in grid.columns), _piped(marks)]
    lines += [_piped(cells) for cells in _markdown_rows(grid)]
    return "\n".join([*lines, "", *(f"- {note}" for note in sheet.notes)]).rstrip() + "\n"


def _markdown_rows(grid: Grid) -> Iterator[tuple[str, ...]]:
    for row in grid.rows:
        if row.kind == "heading":
            yield (f"*{_escaped(row.cells[0])}*", *[""] * (len(grid.columns) - 1))
        else:
            yield tuple(_marked(_escaped(cell), i, row) for i, cell in enumerate(row.cells))


def _marked(cell: str, index: int, row: GridRow) -> str:
    if row.kind == "below":
        return f"*{cell}*" if cell else ""
    return f"**{cell}**" if index in row.best else cell


def _escaped(cell: str) -> str:
    return re.sub(r"([\\|*_`<])", r"\\\1", cell)


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def latex(sheet: Sheet) -> str:
    """A `table*` environment; its first line names the packages that it needs."""
    grid = sheet.grid
    aligned = "".join(LATEX_LONG if column.long else "r" if column.number else "l" for column in grid.columns)
    head = " & ".join(latex_text(column.heading) for column in grid.columns)
    lines = [
        r"% needs \usepackage{array}, \usepackage{booktabs} and \usepackage[T1]{fontenc}",
        r"\begin{table*}[t]",
        rf"\caption{{{latex_text(sheet.title)}.}}",
        rf"\label{{tab:{sheet.name}}}",
        r"\centering",
        r"\small",
        *([r"\setlength{\tabcolsep}{3pt}"] if len(grid.columns) > WIDE_COLUMNS else []),
        rf"\begin{{tabular}}{{@{{}}{aligned}@{{}}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        *_latex_rows(grid),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if sheet.notes:
        lines += [r"\par\smallskip", r"\begin{minipage}{0.96\textwidth}", r"\footnotesize"]
        lines += [latex_text(note) for note in sheet.notes] + [r"\end{minipage}"]
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def _latex_rows(grid: Grid) -> Iterator[str]:
    for index, row in enumerate(grid.rows):
        if row.kind == "heading":
            if index:
                yield r"\midrule"
            yield rf"\multicolumn{{{len(grid.columns)}}}{{@{{}}l}}{{\emph{{{latex_text(row.cells[0])}}}}} \\"
        else:
            cells = (_latex_cell(row, i, column) for i, column in enumerate(grid.columns))
            yield " & ".join(cells) + r" \\"


def _latex_cell(row: GridRow, index: int, column: Column) -> str:
    cell = latex_text(row.cells[index])
    if column.long:
        cell = cell.replace("/", r"/\allowbreak{}")
    if row.kind == "below" and cell:
        indent = r"\quad " if index == 0 else ""
        return rf"{indent}\textit{{{cell}}}"
    return rf"\textbf{{{cell}}}" if index in row.best else cell


def latex_text(text: str) -> str:
    """Any text as LaTeX shows it; Rq and tq get their index."""
    escaped = "".join(LATEX.get(letter, letter) for letter in text)
    return re.sub(r"\b([Rt])(\d+(?:\.\d+)?|q)\b", r"$\1_{\2}$", escaped)


def as_csv(sheet: Sheet) -> str:
    """A line per record; several values in one field have spaces between them."""
    out = io.StringIO()
    names = [field.name for field in fields(sheet.records[0])]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for record in sheet.records:
        values = [getattr(record, name) for name in names]
        writer.writerow(" ".join(map(str, value)) if isinstance(value, tuple) else value for value in values)
    return out.getvalue()


def as_json(sheet: Sheet) -> str:
    value = {
        "name": sheet.name,
        "title": sheet.title,
        "notes": list(sheet.notes),
        "records": [asdict(record) for record in sheet.records],
    }
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
