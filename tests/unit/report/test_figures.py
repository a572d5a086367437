"""Each figure shows every row it is of, and one that no run has data for says what it needs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from unit.report.made import QUICK, make_row, make_run, sections_of

from gcpsl.config import override
from gcpsl.report.canvas import Figure, Missing, Picture, picture
from gcpsl.report.curves import BYTES, TIME, accuracy_against_all, drift, unit_of
from gcpsl.report.curves import curves as curves_of
from gcpsl.report.overview import overview
from gcpsl.report.paper_figures import paper_figures
from gcpsl.report.style import DASHES, LOOKS, MARKERS, SERIES, look

SVG = "{http://www.w3.org/2000/svg}"
SEEDS = [(70, 86, 88.5, 90), (72, 85, 89, 91)]


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Picture]:
    """The paper's figures of made-up runs."""
    root = tmp_path_factory.mktemp("runs")
    for row in ("gpsl", "label-aware-4", "size-balanced-4", "label-aware-8", "random-8", "size-balanced-16"):
        make_row(root, "cluster-count", row, SEEDS)
    make_row(root, "capacity", "gpsl-512", SEEDS)
    for row in ("random", "label-aware", "sequential", "single-worker"):
        make_row(root, "real-execution", row, SEEDS)
    drawn = paper_figures(sections_of(root))
    return {figure.name: picture(figure) for figure in drawn if isinstance(figure, Figure)}


def texts(svg: str) -> str:
    return "\n".join("".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text"))


def curves(svg: str, points: int) -> int:
    """Lines of at least so many points."""
    paths = [path.get("d", "") for path in ElementTree.fromstring(svg).iter(f"{SVG}path")]
    return sum(len(re.findall("[ML]", path)) >= points and "z" not in path for path in paths)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("operating-points", ("Random", "Label-aware", "Single-worker", "time to 85% (s)", "direct participation (%)")),
        ("accuracy-rounds-samples", ("GPSL", "Size-balanced", "(d) N = 8, samples", "test accuracy (%)")),
        ("cluster-count-trade-off", ("label-aware", "size-balanced, paper", "clusters N", "(d) inactivity")),
        ("concurrent-sequential", ("concurrent", "sequential", "(paper 3.11×)", "GPU time to 85% (s)")),
        ("capacity-boundary", ("GPSL, B = 512", "paper 4,242", "peak memory per workload (MiB)")),
    ],
)
def test_the_papers_figures_name_what_they_show(name: str, labels: tuple[str, ...], papers: dict[str, Picture]) -> None:
    drawn = papers[name]
    for svg in (drawn.svg, drawn.narrow_svg):
        for label in labels:
            assert label in texts(svg)
    assert drawn.png.startswith(b"\x89PNG")
    assert len(drawn.png) > 10_000


def test_a_figure_has_a_line_per_row_in_each_panel(tmp_path: Path) -> None:
    for lr in (0.1, 0.2, 0.3):
        for seed in (0, 1):
            config = override(QUICK, f"optimizer.lr={lr}", f"seed={seed}", "train.epochs=4")
            make_run(tmp_path, f"{lr}-{seed}", config, [value + seed + lr for value in (60, 70, 80, 85)])
    (section,) = sections_of(tmp_path)
    drawn = picture(accuracy_against_all(section))
    assert curves(drawn.svg, 4) == curves(drawn.narrow_svg, 4) == 4 * 3
    assert drawn.svg.count("FillBetweenPolyCollection") == 4 * 3
    for label in ("lr = 0.1", "lr = 0.2", "lr = 0.3", "training time (s)", "(c) against payload"):
        assert label in texts(drawn.svg)
    apart = drift(section)
    assert isinstance(apart, Figure)
    assert curves(picture(apart).svg, 4) == 3


def test_what_no_run_has_data_for_says_which_runs_it_needs(tmp_path: Path) -> None:
    make_run(tmp_path, "one", QUICK, (90, 91))
    said = {figure.name: figure for figure in paper_figures(sections_of(tmp_path))}
    assert len(said) == 5
    for figure in said.values():
        assert isinstance(figure, Missing)
        assert figure.why.startswith("needs runs of ")
    make_row(tmp_path, "real-execution", "label-aware", [(60, 61)])
    make_row(tmp_path, "real-execution", "sequential", [(60, 61)])
    assert isinstance({one.name: one for one in paper_figures(sections_of(tmp_path))}["concurrent-sequential"], Missing)


def test_more_rows_than_can_be_told_apart_are_not_drawn(tmp_path: Path) -> None:
    for i in range(LOOKS + 1):
        make_run(tmp_path, f"run-{i}", override(QUICK, f"optimizer.lr={0.01 * (i + 1):.2f}"), (90, 91))
    (section,) = sections_of(tmp_path)
    (missing,) = curves_of(section)
    assert isinstance(missing, Missing)
    assert missing.why.startswith("25 rows can't be told apart")


def test_the_overview_needs_no_runs() -> None:
    drawn = picture(overview())
    for label in ("GPSL: one workload", "replica 4", "fusion at every epoch's end", "time"):
        assert label in texts(drawn.svg)


def test_equal_runs_give_equal_pictures(papers: dict[str, Picture]) -> None:
    again = picture(papers["capacity-boundary"].figure)
    assert (again.svg, again.png) == (papers["capacity-boundary"].svg, papers["capacity-boundary"].png)


def test_rows_differ_in_more_than_colour() -> None:
    looks = [look(index) for index in range(LOOKS)]
    assert len({(one.colour, one.marker, str(one.dash)) for one in looks}) == LOOKS
    assert len({(one.marker, str(one.dash)) for one in looks[:8]}) == 8
    assert len(set(SERIES)) == len(set(MARKERS)) == 8
    assert len({str(dash) for dash in DASHES}) == len(DASHES)


def test_axes_have_the_largest_unit_that_fits() -> None:
    assert [unit_of(seconds, TIME.units).name for seconds in (100, 200, 8000)] == ["s", "min", "h"]
    assert [unit_of(count, BYTES).name for count in (1, 2e6, 3e9, 4e12)] == ["kB", "MB", "GB", "TB"]
