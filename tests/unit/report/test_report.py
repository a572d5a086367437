"""`gcpsl report` from end to end, on runs that are really trained: every file, the maps, and what is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result
from unit.report.made import make_row, make_run

from gcpsl import cli
from gcpsl.errors import ConfigError
from gcpsl.report.making import Asked, make_report
from gcpsl.studies.own import find_study

OWN = """
base = "quickstart"
measures = ["accuracy", "r60", "participation"]
[settings]
partition.clients = 8
model.name = "mlp"
train.epochs = 2
runtime.device = "cpu"
[axes]
schedule.workloads = [2, 4]
[rows.single]
label = "One workload"
schedule.workloads = 1
schedule.draw = "all"
[rows.redrawn]
clustering.rule = "random"
schedule.assignment = "redrawn"
"""


def gcpsl(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, and its runs below `runs`: two seeds of one row, one of the others."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.toml").write_text(OWN)
    settings = ["partition.clients=8", "model.name=mlp", "train.epochs=2", "runtime.device=cpu"]
    rows = {
        "a": ["schedule.workloads=2"],
        "b": ["schedule.workloads=2", "seed=1"],
        "c": ["schedule.workloads=4"],
        "d": ["schedule.workloads=1", "schedule.draw=all"],
        "e": ["clustering.rule=random", "schedule.assignment=redrawn"],
        "f": ["schedule.workloads=8"],
    }
    for name, own in rows.items():
        place = [f"run.root={folder / 'runs'}", f"run.name={name}"]
        assert gcpsl("train", "quickstart", *settings, *own, *place).exit_code == 0
    return folder


def test_a_study_of_ones_own_is_tabulated_and_drawn(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = gcpsl("report", trained / "runs", "--study", trained / "mine.toml", "-o", out, "--json")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made == {
        "page": str(out / "index.html"),
        "runs": 6,
        "tables": ["mine", "other-runs", "runs"],
        "figures": [
            "execution-overview",
            "accuracy-mine",
            "drift-mine",
            "accuracy-other-runs",
            "drift-other-runs",
            "participation-map",
            "composition",
        ],
        "left_out": [],
    }
    for name in made["tables"]:
        for ending in ("md", "tex", "csv", "json"):
            assert (out / "tables" / f"{name}.{ending}").stat().st_size > 0
    for name in made["figures"]:
        assert (out / "figures" / f"{name}.png").stat().st_size > 5_000
        assert "<text" in (out / "figures" / f"{name}.svg").read_text()
    table = (out / "tables" / "mine.md").read_text()
    assert table.count("\n| ") == 2 + 4
    assert "paper" not in table
    page = (out / "index.html").read_text()
    for text in ("One workload", "workloads = 2", "composition", str(trained / "runs" / "a")):
        assert text in page


def test_the_papers_studies_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCPSL_DATA", str(tmp_path / "nowhere"))
    make_row(tmp_path / "runs", "cluster-count", "size-balanced-4", [(80, 86, 89)])
    result = gcpsl("report", tmp_path / "runs", "data.root=/nowhere", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == f"4 tables and 4 figures of 1 run: {tmp_path / 'out' / 'index.html'}"
    missing = "left out: figure 'Clients of Size-balanced, N = 4, B = 64' (maps): needs the run's own data; no cifar10"
    assert any(line.startswith(missing) for line in lines), result.stdout
    assert any("Operating points" in line and "needs runs of real-execution" in line for line in lines)
    assert "*90.27 ± 0.23*" in (tmp_path / "out" / "tables" / "cluster-count.md").read_text()


def test_without_matplotlib_there_are_tables_and_the_page(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    made = make_report(Asked((trained / "runs",)), tmp_path / "out")
    assert made.figures == ()
    (said,) = made.left_out
    assert said.startswith("all figures: drawing the report's figures needs matplotlib")
    assert "pip install 'gcpsl[report]'" in said
    assert "pip install &#x27;gcpsl[report]&#x27;" in made.page.read_text()
    assert (tmp_path / "out" / "tables" / "other-runs.csv").is_file()


def test_smoke_runs_fill_the_papers_rows_without_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    row = find_study("fusion", smoke=True).row("never")
    make_run(tmp_path / "runs", "never", row.seeded(0), (90, 91, 92))
    made = make_report(Asked((tmp_path / "runs",), smoke=True), tmp_path / "out")
    assert "fusion" in made.tables
    assert "paper" not in (tmp_path / "out" / "tables" / "fusion.md").read_text()
    assert "the numbers mean nothing" in made.page.read_text()


def test_a_partition_that_is_not_the_runs_own_is_not_drawn(trained: Path, tmp_path: Path) -> None:
    copied = tmp_path / "runs" / "a"
    copied.mkdir(parents=True)
    for file in (trained / "runs" / "a").glob("*.*"):
        (copied / file.name).write_bytes(file.read_bytes())
    log = (copied / "epochs.jsonl").read_text()
    first = json.loads(log.splitlines()[0])["active_client_rounds"]
    (copied / "epochs.jsonl").write_text(log.replace(f'"active_client_rounds": {first}', '"active_client_rounds": 1'))
    made = make_report(Asked((tmp_path / "runs",)), tmp_path / "out")
    assert any("is not what" in line and "other clients would have taken part" in line for line in made.left_out)
    assert "participation-map" not in made.figures


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "-o", "out"], "'nowhere' does not exist; give run folders"),
        (["optimizer.lr=1", "-o", "out"], "no runs are named; give run folders"),
        (["mine.toml", "-o", "out"], "'mine.toml' is a file; give run folders"),
        (["runs", "-o", "mine.toml"], "'mine.toml' is a file; name a folder"),
        (["runs", "-o", "mine.toml/out"], "can't write the report to 'mine.toml/out'"),
        (["runs", "--study", "fusio", "-o", "out"], "did you mean 'fusion'?"),
        (["runs", "train.epoch=3", "-o", "out"], "did you mean 'train.epochs'?"),
        (["runs", "--study", "mine.toml", "--study", "mine.toml", "-o", "out"], "two tables would be called 'mine'"),
        (["runs", "--study", "mine.toml", "--smoke", "-o", "out"], "has no smoke variant"),
    ],
)
def test_every_mistake_has_its_message(
    words: list[str], message: str, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    result = gcpsl("report", *words)
    assert isinstance(result.exception, ConfigError), result.output
    assert message in str(result.exception)
    assert not (trained / "out").exists()
