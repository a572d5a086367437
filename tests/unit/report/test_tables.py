"""A table's cells: means, deviations, coverage, dashes and ratios; and the same as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.report.made import QUICK, make_row, make_run, sections_of

from gcpsl.report.comparisons import comparisons
from gcpsl.report.grid import Column, Grid, GridRow, Sheet, number, spread, times
from gcpsl.report.sheets import as_csv, as_json, latex, latex_text, markdown
from gcpsl.report.tables import Cell, table
from gcpsl.studies import PaperValue, measure


def cell(name: str, *values: float | None, paper: PaperValue | None = None) -> Cell:
    return Cell(measure(name), tuple(value for value in values if value is not None), len(values), paper)


def printed(mean: float | None, sd: float | None = None, reached: int | None = None) -> PaperValue:
    return PaperValue("s", "r", "m", mean, sd, reached, "Table")


def test_a_cell_is_the_mean_and_the_sample_deviation() -> None:
    assert cell("accuracy", 90, 91, 92).shown() == "91.00 ± 1.00"
    assert cell("accuracy", 90).shown() == "90.00"


def test_a_target_that_not_all_runs_reached_says_how_many_did() -> None:
    assert cell("r85", 3.0, 3.5, None).shown() == "3.25 ± 0.35 (2 of 3)"
    assert cell("r85", None, 9.11, None).shown() == "9.11 (1 of 3)"


def test_a_dash_is_a_target_that_no_run_reached_and_other_missing_values_are_blank() -> None:
    assert cell("r85", None, None).shown() == "–"
    assert cell("best_val_accuracy", None).shown() == ""


def test_the_papers_value_stands_beside_with_the_ratio() -> None:
    both = cell("r85", 3.0, 4.0, paper=printed(7.0, 0.5))
    assert (both.paper_shown(), both.ratio) == ("7.00 ± 0.50", 0.5)
    assert cell("r60", 1, paper=printed(9.11, None, 1)).paper_shown() == "9.11 (1 of 3)"
    dashed = cell("r88", 1.0, paper=printed(None, None, 0))
    assert (dashed.paper_shown(), dashed.ratio) == ("–", None)
    assert cell("r85", None, paper=printed(7.0)).ratio is None


def test_numbers_have_separators_and_enough_digits() -> None:
    assert number(1640.4, 0) == "1,640"
    assert number(0.1074, 2) == "0.107"
    assert number(12345.678, 2) == "12,345.68"
    assert spread(1.0, 0.0, 0) == "1"
    assert (times(0.01764), times(1.0), times(1250)) == ("0.0176×", "1.00×", "1,250×")


@given(st.floats(1e-6, 1e6), st.integers(1, 3))
def test_a_number_shown_keeps_three_digits(value: float, digits: int) -> None:
    assert math.isclose(float(number(value, digits).replace(",", "")), value, rel_tol=5.1e-3)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_the_order_of_seeds_does_not_matter(values: list[float]) -> None:
    assert cell("accuracy", *values).shown() == cell("accuracy", *reversed(values)).shown()


def test_rows_of_the_paper_are_tabulated_with_what_it_prints(tmp_path: Path) -> None:
    make_row(tmp_path, "cluster-count", "gpsl", [(80, 86, 89), (84, 86, 91), (80, 82, 90)])
    make_row(tmp_path, "cluster-count", "random-8", [(80, 82, 84)])
    section = sections_of(tmp_path)[0]
    lines = markdown(table(section)).splitlines()
    assert lines[0] == f"### {section.study.about}"
    assert "| Method | Assignment | N | Seeds | Acc. (%)\u00a0↑ | R85\u00a0↓ |" in lines[2]
    assert lines[4].startswith("| GPSL | global | – | 3 | **90.00 ± 1.00** | **0.00933 ± 0.00231** | **0.0120 ± 0")
    assert lines[5].startswith("| *paper* |  |  |  | *89.40 ± 0.24* | *6.78 ± 0.45* | *14.86 ± 2.07* |")
    assert lines[6].startswith("| *ratio* |  |  |  | *1.01×* | *0.00138×* |")
    assert lines[7].startswith("| GCPSL | random | 8 | 1 | 84.00 | – | – |")
    notes = markdown(table(section)).partition("\n\n- ")[2]
    assert "sample standard deviations" in notes
    assert "Without a finished run: label-aware-2" in notes
    assert "Trained on A processor (gcpsl 0.1.0, torch 2.8.0)." in notes


def test_groups_of_rows_have_headings(tmp_path: Path) -> None:
    make_row(tmp_path, "real-execution", "random", [(80, 86)])
    make_row(tmp_path, "real-execution", "single-worker", [(80, 86)])
    (section,) = sections_of(tmp_path)
    assert [row.cells[0] for row in table(section).grid.rows if row.kind == "heading"] == [
        "Fixed-assignment comparison",
        "Other reference baselines",
    ]


def test_runs_of_no_study_are_called_by_what_tells_them_apart(tmp_path: Path) -> None:
    for seed in (0, 1):
        for rule in ("random", "size_balanced"):
            config = QUICK.model_copy(
                update={"seed": seed, "clustering": QUICK.clustering.model_copy(update={"rule": rule})}
            )
            make_run(tmp_path, f"{rule}-{seed}", config, (91, 96))
    (section,) = sections_of(tmp_path)
    assert section.study.name == "other-runs"
    assert {line.row.title: line.group.seeds for line in section.lines} == {
        "rule = random": (0, 1),
        "rule = size_balanced": (0, 1),
    }
    values = {value.measure: value for value in table(section).records if value.label == "rule = random"}
    assert values["r90"].mean == 0.004
    assert values["accuracy"].values == (96, 96)


def test_comparisons_of_two_rows_are_worked_out(tmp_path: Path) -> None:
    make_row(tmp_path, "real-execution", "label-aware", [(80, 86, 89)])
    make_row(tmp_path, "real-execution", "sequential", [(80, 82, 84, 86)])
    sheet = comparisons(sections_of(tmp_path))
    assert sheet is not None
    (row,) = sheet.grid.rows
    assert row.cells == ("real-execution", "sequential", "label-aware", "t85 (min)", "ratio", "2.00", "3.11")
    make_row(tmp_path / "more", "fusion", "epoch", [(80, 86)])
    assert comparisons(sections_of(tmp_path / "more")) is None


@dataclass(frozen=True)
class Something:
    name: str
    values: tuple[float, ...]
    missing: float | None = None


SHEET = Sheet(
    "odd",
    "50% & more: a_b",
    Grid(
        (Column("Name"), Column("R85 ↓", number=True)),
        (GridRow(("one | two",), "heading"), GridRow(("a_b|c", "1.0 ± 0.1"), best=frozenset({1}))),
    ),
    (Something("a,b", (1.0, 2.0)),),
    ("Costs $5 {or} #6 ~ \\ ^",),
)


def test_latex_shows_every_letter_as_it_is() -> None:
    assert latex_text("50% & $5 a_b #1 {x} ~ ^ \\ | <>") == (
        r"50\% \& \$5 a\_b \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} "
        r"\textbar{} \textless{}\textgreater{}"
    )
    assert latex_text("R85 of 3 ± 1, 2× – t88.5 ↑") == r"$R_{85}$ of 3 $\pm$ 1, 2$\times$ -- $t_{88.5}$ $\uparrow$"
    text = latex(SHEET)
    assert r"\caption{50\% \& more: a\_b.}" in text
    assert r"\multicolumn{2}{@{}l}{\emph{one \textbar{} two}} \\" in text
    assert r"a\_b\textbar{}c & \textbf{1.0 $\pm$ 0.1} \\" in text
    assert text.count(r"\begin{") == text.count(r"\end{")
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert rule in text


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])))
def test_latex_text_has_no_bare_specials(text: str) -> None:
    shown = latex_text(text)
    for special in "%&#":
        assert shown.count(special) == shown.count(f"\\{special}") == text.count(special)
    assert shown.count("{") == shown.count("}") or text.count("{") != text.count("}")


def test_markdown_cells_hold_no_bare_bars() -> None:
    assert markdown(SHEET).splitlines()[2:6] == [
        "| Name | R85 ↓ |",
        "| --- | ---: |",
        "| *one \\| two* |  |",
        "| a\\_b\\|c | **1.0 ± 0.1** |",
    ]


def test_csv_and_json_hold_the_records() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(SHEET))))
    assert rows == [{"name": "a,b", "values": "1.0 2.0", "missing": ""}]
    assert json.loads(as_json(SHEET)) == {
        "name": "odd",
        "title": "50% & more: a_b",
        "notes": list(SHEET.notes),
        "records": [{"name": "a,b", "values": [1.0, 2.0], "missing": None}],
    }


def test_a_tables_records_have_a_line_per_row_and_measure(tmp_path: Path) -> None:
    make_row(tmp_path, "fusion", "epoch", [(80, 86), (80, 84)])
    (section,) = [one for one in sections_of(tmp_path) if one.study.name == "fusion"]
    read = {value["measure"]: value for value in json.loads(as_json(table(section)))["records"]}
    assert set(read) == {"accuracy", "r85", "r88"}
    r85 = read["r85"]
    assert (r85["mean"], r85["sd"], r85["runs"], r85["reached"], r85["seeds"]) == (0.008, None, 2, 1, [0, 1])
    assert (r85["paper_mean"], r85["paper_where"]) == (3.40, "Table 'Fusion and payload controls', (a)")
    assert r85["ratio"] == pytest.approx(0.008 / 3.40)
