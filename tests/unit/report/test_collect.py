"""Which runs count, how they are grouped over seeds, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.report.made import QUICK, make_run, sections_of

from gcpsl.config import override
from gcpsl.errors import ConfigError
from gcpsl.report.collect import collect, row_key
from gcpsl.report.sections import labels_of
from gcpsl.studies import Row, Study


@given(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(["optimizer.lr=0.5", "train.epochs=7"]))
def test_runs_of_one_row_differ_in_their_seed_alone(one: int, other: int, change: str) -> None:
    first, second = override(QUICK, f"seed={one}"), override(QUICK, f"seed={other}", "run.name=x")
    assert row_key(first) == row_key(second)
    assert row_key(first) != row_key(override(second, change))


def test_runs_are_grouped_over_seeds_wherever_they_lie(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "b", "one", override(QUICK, "seed=1"), (90, 91))
    make_run(tmp_path, "two", override(QUICK, "seed=0"), (90, 91))
    make_run(tmp_path, "other", override(QUICK, "train.epochs=3"), (90, 91, 92))
    groups = collect([tmp_path, tmp_path / "two"]).groups
    assert sorted(group.seeds for group in groups) == [(0,), (0, 1)]


def test_every_run_counts_or_is_said_to_be_left_out(tmp_path: Path) -> None:
    make_run(tmp_path, "ended", QUICK, (90, 91))
    make_run(tmp_path, "same", QUICK, (90, 91))
    make_run(tmp_path, "begun", override(QUICK, "seed=1"), (90,), ended=False)
    going_on = make_run(tmp_path, "going-on", override(QUICK, "seed=2"), (), ended=False)
    (make_run(tmp_path, "no-log", override(QUICK, "seed=3"), (90,)).path / "epochs.jsonl").unlink()
    (make_run(tmp_path, "bad", override(QUICK, "seed=4"), (90,)).path / "config.toml").write_text("[data]\nnew = 1\n")
    with going_on.locked():
        found = collect([tmp_path])
    assert [run.path.name for group in found.groups for run in group.runs] == ["ended"]
    said = "\n".join(found.left_out)
    assert f"begun: unfinished, 1 of {QUICK.train.epochs} epochs" in said
    assert f"going-on: still running, 0 of {QUICK.train.epochs} epochs" in said
    assert f"same: the same settings and seed as {tmp_path / 'ended'}, which is taken" in said
    assert "no-log: its epochs.jsonl is missing or empty" in said
    assert "bad" in said
    assert len(found.left_out) == 5


def test_what_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; give run folders"):
        collect([tmp_path / "nowhere"])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file; give run folders"):
        collect([tmp_path / "file"])
    with pytest.raises(ConfigError, match="no run folders in"):
        collect([tmp_path])
    make_run(tmp_path, "begun", QUICK, (90,), ended=False)
    with pytest.raises(ConfigError, match=r"none of the runs can be reported:\n.*unfinished, 1 of 2 epochs"):
        collect([tmp_path])


def test_a_study_shows_its_rows_that_have_runs_and_names_the_others(tmp_path: Path) -> None:
    make_run(tmp_path, "b", override(QUICK, "optimizer.lr=0.5"), (90, 91))
    rows = [Row(name, override(QUICK, f"optimizer.lr={lr}")) for name, lr in (("a", 0.1), ("b", 0.5))]
    study = Study("mine", "About it", (*rows, Row("c", override(QUICK, "optimizer.lr=0.7"), default=False)))
    (section,) = sections_of(tmp_path, [study])
    assert [line.row.name for line in section.lines] == ["b"]
    assert section.missing == ("a",)
    assert not section.compared


def test_rows_without_a_name_are_called_by_their_settings() -> None:
    assert labels_of([QUICK]) == ("clients = 8, name = mlp, epochs = 2, device = cpu",)
    two = [override(QUICK, "partition.file=none"), override(QUICK, "optimizer.lr=0.5", "data.name=a:b", "seed=4")]
    assert labels_of(two) == ("name = digits, lr = 0.02", "name = a:b, lr = 0.5")
    assert labels_of([two[0], override(two[0], "data.name=a:b", "model.name=vit")]) == (
        "data.name = digits, model.name = mlp",
        "data.name = a:b, model.name = vit",
    )
