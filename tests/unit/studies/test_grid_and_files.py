"""A user's own study, from a TOML grid or a Python file, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gcpsl.errors import ConfigError
from gcpsl.studies import Study
from gcpsl.studies.own import find_study

GRID = """
about = "Clusters and rules"
base = "paper-real"
seeds = [3, 4]
measures = ["accuracy", "r90"]
timed = true

[settings]
train.epochs = 7

[axes]
schedule.workloads = [2, 4]
"clustering.rule" = ["random", "label_aware"]

[rows.single]
label = "One workload"
schedule.workloads = 1
schedule.draw = "all"

[rows.literal]
default = false
clustering.start = "size_balanced"
model.cut = "none"

[smoke]
train.epochs = 1
"""


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.fixture
def grid(tmp_path: Path) -> Study:
    return find_study(written(tmp_path, "mine.toml", GRID))


def test_a_grid_has_its_own_rows_and_all_combinations(grid: Study) -> None:
    assert (grid.name, grid.about, grid.seeds, grid.timed) == ("mine", "Clusters and rules", (3, 4), True)
    assert grid.headings == ("workloads", "rule")
    assert grid.measures == ("accuracy", "r90")
    assert [row.name for row in grid.rows] == [
        "single",
        "literal",
        "workloads-2-rule-random",
        "workloads-2-rule-label_aware",
        "workloads-4-rule-random",
        "workloads-4-rule-label_aware",
    ]
    assert {row.config.train.epochs for row in grid.rows} == {7}
    assert {row.config.model.name for row in grid.rows} == {"resnet18"}
    last = grid.rows[-1]
    assert (last.title, last.cells) == ("workloads = 4, rule = label_aware", ("4", "label_aware"))
    assert (last.config.schedule.workloads, last.config.clustering.rule) == (4, "label_aware")


def test_rows_that_are_written_out_have_their_settings_and_words(grid: Study) -> None:
    single, literal = grid.row("single"), grid.row("literal")
    assert (single.title, single.cells, single.default) == ("One workload", ("1", "size_balanced"), True)
    assert single.config.schedule.draw == "all"
    assert literal.config.model.cut is None
    assert not literal.default
    assert [row.name for row in grid.smoked().rows if row.config.train.epochs == 1] == [row.name for row in grid.rows]


def test_a_base_file_lies_beside_the_grid_and_axes_of_one_name_keep_their_sections(tmp_path: Path) -> None:
    written(tmp_path, "base.toml", "[train]\nepochs = 5\n")
    axes = '[axes]\nmodel.name = ["mlp"]\ndata.name = ["digits"]\n'
    study = find_study(written(tmp_path, "mine.toml", f'base = "base.toml"\n{axes}'))
    assert study.headings == ("model.name", "data.name")
    (row,) = study.rows
    assert row.config.train.epochs == 5
    assert row.name == "model.name-mlp-data.name-digits"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        ("axis = 1", "'axis', which a study doesn't know: did you mean 'axes'"),
        ("axes = 1", r"'axes' in '.*' is a table: write \[axes\]"),
        ("[rows]\na = 1", r"'rows.a' in '.*' is a table"),
        ("[axes]\ntrain.epochs = 3", r"'train.epochs' in '.*' must be a list"),
        ("seeds = 3\n[rows.a]", "'seeds' in '.*' must be a list"),
        ("[rows.a]\ntrain.epoch = 3", "unknown setting 'train.epoch': did you mean 'train.epochs'"),
        ("[rows.a]\nseed.x = 3", "'seed.x' is not a setting"),
        ("[rows.a]\ntrain.epochs = 0", "train.epochs = 0: must be at least 1"),
        ('[rows."a b"]', "'a b' in the study 'mine' can't be a name"),
        ('base = "paper-reel"\n[rows.a]', "did you mean 'paper-real'"),
        ("[rows.a", "is not valid TOML"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        find_study(written(tmp_path, "mine.toml", text))


def test_a_python_file_gives_rows_or_a_whole_study(tmp_path: Path) -> None:
    rows = '"""What it is about.\n\nMore."""\nimport gcpsl\nfrom gcpsl.studies import Row, Study\n'
    made = 'def study():\n    return [Row("a", gcpsl.Config())]\n'
    study = find_study(written(tmp_path, "mine.py", rows + made))
    assert (study.name, study.about, [row.name for row in study.rows]) == ("mine", "What it is about.", ["a"])
    whole = 'def study():\n    return Study("whole", "", (Row("b", gcpsl.Config()),), seeds=(5,))\n'
    study = find_study(written(tmp_path, "other.py", rows + whole))
    assert (study.name, study.seeds) == ("whole", (5,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"has no function study\(\)"),
        ("def study():\n    return 3", "returned int; return a gcpsl.studies.Study"),
        ("def study():\n    return 1 / 0", "failed: ZeroDivisionError"),
        ("import nowhere", "importing '.*' failed: ModuleNotFoundError"),
        ("from gcpsl import config\nconfig.load('x')", "no config file 'x'"),
        ("from gcpsl import config\ndef study():\n    return config.load('x')", "no config file 'x'"),
    ],
)
def test_a_python_file_that_makes_no_study_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        find_study(written(tmp_path, "mine.py", text))


@pytest.mark.parametrize("source", ["nowhere.py", "nowhere.toml"])
def test_a_file_that_is_not_there_is_said(source: str) -> None:
    with pytest.raises(ConfigError, match=f"no study file '{source}'"):
        find_study(source)


def test_a_misspelt_study_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no study 'cluster-cuont': did you mean 'cluster-count'"):
        find_study("cluster-cuont")
    assert find_study("fusion", smoke=True).row("never").config.data.name == "digits"
