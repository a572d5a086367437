"""Studies, their rows, the columns of their tables, and whose row a run is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RECORD

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.errors import ConfigError, RunError
from gcpsl.records import EpochRecord, Summary
from gcpsl.runs import RunFolder
from gcpsl.studies import (
    Entry,
    Finished,
    Row,
    Study,
    best_of,
    find_runs,
    finished,
    measure,
    paper_studies,
    run_key,
    serves,
)
from gcpsl.studies.measures import AT_TARGET, PLAIN
from gcpsl.studies.tasks import tasks

DEFAULT = Config()
SUMMARY = Summary(
    run="runs/x",
    epochs=2,
    clients=8,
    workloads=2,
    samples=100,
    test_accuracy=91.5,
    validation_accuracy=90.0,
    best_epoch=2,
    best_validation_accuracy=90.0,
    best_test_accuracy=91.0,
    participation_ran=0.5,
    participation_system=0.4,
    participation_bound=1.0,
    batch_deviation=0.3,
    speedup_ideal=2.0,
    speedup_real=1.0,
    efficiency_ideal=1.0,
    payload_simulator_bytes=8e9,
    payload_real_bytes=4e9,
    training_s=120.0,
    setup_s=1.0,
    wall_s=130.0,
    rounds_per_s=10.0,
    samples_per_s=100.0,
    memory_bytes_max=4 * 2**20,
    target_split="validation",
)


def study(*rows: Row, **more: object) -> Study:
    return Study("mine", "What it is about", rows or (Row("a", DEFAULT), Row("b", DEFAULT, default=False)), **more)  # type: ignore[arg-type]


def test_rows_are_chosen_by_name_in_the_studys_order() -> None:
    one = study()
    assert [row.name for row in one.chosen()] == ["a"]
    assert [row.name for row in one.chosen(["b", "a"])] == ["a", "b"]
    with pytest.raises(
        ConfigError, match=r"the study 'cluster-count' has no row 'size-balanced-3': did you mean 'size-b"
    ):
        paper_studies()[0].chosen(["size-balanced-3"])


def test_overrides_go_to_every_row_and_names_and_seeds_do_not() -> None:
    changed = study().changed("train.epochs=2")
    assert {row.config.train.epochs for row in changed.rows} == {2}
    with pytest.raises(ConfigError, match=r"'seed=3' can't be given to a study; .* --seeds"):
        study().changed("seed=3")
    with pytest.raises(ConfigError, match="names its runs itself"):
        study().changed("run.name=x")
    with pytest.raises(ConfigError, match=r"^unknown setting 'train.epoch': did you mean 'train\.epochs'\?$"):
        study().changed("train.epoch=2")


def test_an_override_that_only_some_rows_refuse_names_them() -> None:
    two = study(Row("a", DEFAULT), Row("b", configs.override(DEFAULT, "schedule.workloads=1")))
    with pytest.raises(ConfigError, match=r"runtime\.slots = 2 is more than .*; so it is in b: choose other rows"):
        two.changed("runtime.slots=2")
    assert two.only(["a"]).changed("runtime.slots=2").rows[0].config.runtime.slots == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Study("mine", "", ()), "has no rows"),
        (lambda: study(Row("a", DEFAULT), Row("a", DEFAULT)), "two rows named 'a'"),
        (lambda: study(Row("a=b", DEFAULT)), "'a=b' in the study 'mine' can't be a name"),
        (lambda: study(Row("a", DEFAULT, cells=("x", "y"))), "2 cells for 1 headings"),
        (lambda: study(seeds=(1, 1)), r"seeds = \[1, 1\]"),
        (lambda: study(measures=("acuracy",)), "no measure 'acuracy': did you mean 'accuracy'"),
        (lambda: study().smoked(), "has no smoke variant"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(make: Callable[[], Study], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_row_without_cells_shows_its_label() -> None:
    one = study(Row("a", DEFAULT, label="Alpha"), headings=("Method", "N"))
    assert one.cells(one.rows[0]) == ("Alpha", "")


def records(*accuracies: float) -> tuple[EpochRecord, ...]:
    return tuple(
        replace(RECORD, epoch=epoch, test_accuracy=accuracy, validation_accuracy=accuracy - 1)
        for epoch, accuracy in enumerate(accuracies, start=1)
    )


def test_every_measure_is_read_from_a_finished_run() -> None:
    run = Finished(configs.load("paper-simulator"), SUMMARY, records(80, 85, 88))
    read = {name: column.read(run) for name, column in PLAIN.items()}
    assert read["accuracy"] == 91.5
    assert read["best_val_accuracy"] == 91.0
    assert read["inactivity"] == 50
    assert read["phase_gb"] == pytest.approx(8 / 12)
    assert read["memory_mib"] == 2
    assert read["training_min"] == 2
    at = {name: measure(name).read(run) for name in ("r85", "t85", "worker_minutes_85", "payload_tb_85", "r90")}
    assert at == {
        "r85": 0.008,
        "t85": pytest.approx(2.4 / 60),
        "worker_minutes_85": pytest.approx(2.4 / 60),
        "payload_tb_85": 200e-12,
        "r90": None,
    }
    assert measure("payload_real_tb_88").read(run) == 150e-12


def test_targets_are_read_from_the_split_that_the_row_names() -> None:
    on_validation = Finished(configs.load("paper-real"), SUMMARY, records(80, 85, 88))
    assert measure("r85").read(on_validation) == 0.012
    nothing_held_out = tuple(replace(record, validation_accuracy=None) for record in records(80, 85, 88))
    assert measure("r85").read(replace(on_validation, records=nothing_held_out)) == 0.008


def test_measures_of_targets_are_named_after_their_accuracy() -> None:
    assert {measure(name).target for name in ("r85", "t85", "payload_tb_85", "worker_minutes_85")} == {85}
    assert measure("r87.5").heading == "R87.5"
    for name in ("r", "r_85", "payload_tb85", "r101", "r0", "85", "x85"):
        with pytest.raises(ConfigError, match="no measure"):
            measure(name)
    assert set(AT_TARGET) == {"r", "t", "worker_minutes", "payload_tb", "payload_real_tb"}


@pytest.mark.parametrize(
    "change",
    ["run.name=x", "run.root=x", "run.targets=[1]", "run.track=['tensorboard']", "data.root=x", "runtime.timeout_s=9"],
)
def test_names_places_clocks_and_targets_make_no_other_run(change: str) -> None:
    assert run_key(configs.override(DEFAULT, change)) == run_key(DEFAULT)


@pytest.mark.parametrize(
    "change", ["seed=1", "train.epochs=2", "optimizer.lr=0.1", "runtime.precision=bf16", "clustering.swaps=false"]
)
def test_whatever_can_change_results_makes_another_run(change: str) -> None:
    assert run_key(configs.override(DEFAULT, change)) != run_key(DEFAULT)


def test_settings_that_a_rule_does_not_read_make_no_other_run() -> None:
    blind = configs.override(DEFAULT, "clustering.rule=random")
    assert run_key(configs.override(blind, "clustering.swaps=false")) == run_key(blind)
    balanced = configs.override(DEFAULT, "clustering.rule=size_balanced")
    assert run_key(configs.override(balanced, "clustering.speeds=[1, 1, 1, 0.5]")) != run_key(balanced)
    single = configs.override(DEFAULT, "schedule.draw=all")
    assert run_key(configs.override(single, "clustering.rule=random")) == run_key(single)


def test_a_file_that_is_the_data_is_part_of_the_run(tmp_path: Path) -> None:
    one, other = (configs.override(DEFAULT, "data.name=npz", f"data.root={name}.npz") for name in "ab")
    assert run_key(one) != run_key(other)
    assert run_key(one) == run_key(configs.override(one, f"data.root={Path('a.npz').absolute()}"))


def test_a_run_serves_every_study_that_has_its_row_whatever_its_seed() -> None:
    config = configs.load("paper-simulator", ["clustering.rule=size_balanced", "seed=7", "data.root=/elsewhere"])
    row = "size-balanced-4"
    assert serves(config, paper_studies()) == tuple(
        Entry(name, row, 7) for name in ("cluster-count", "payload", "capacity")
    )
    assert serves(configs.override(config, "train.epochs=99"), paper_studies()) == ()


def test_what_a_study_needs_comes_seed_by_seed_and_each_run_once() -> None:
    one = study(Row("a", DEFAULT), Row("b", configs.override(DEFAULT, "train.epochs=2")), Row("c", DEFAULT))
    needed = tasks(one, [0, 1])
    assert [(task.rows, task.seed) for task in needed] == [
        (rows, seed) for seed in (0, 1) for rows in (("a", "c"), ("b",))
    ]
    assert len({task.path for task in needed}) == len({task.log for task in needed}) == 4


def make_run(root: Path, name: str, *overrides: str, epochs: int = 0, ended: bool = False) -> RunFolder:
    config = configs.load(None, [*overrides, f"run.root={root}", f"run.name={name}"])
    folder = RunFolder.create(config, {})
    for epoch in range(epochs):
        folder.log_epoch(replace(RECORD, epoch=epoch + 1).to_json())
    if ended:
        folder.write_json("summary.json", SUMMARY.to_json())
    return folder


def test_runs_are_found_at_any_depth_and_the_best_of_equal_ones_is_taken(tmp_path: Path) -> None:
    make_run(tmp_path / "deep" / "er", "begun", epochs=3)
    make_run(tmp_path, "ended", epochs=2, ended=True)
    make_run(tmp_path, "other", "train.epochs=2", epochs=1)
    with make_run(tmp_path, "going-on", "train.epochs=2").locked():
        runs, unreadable = find_runs(tmp_path)
        best = best_of(runs)
    assert sorted(run.folder.name for run in runs) == ["begun", "ended", "going-on", "other"]
    assert unreadable == []
    assert {run.folder.name for run in best.values()} == {"ended", "going-on"}


def test_runs_that_cannot_be_read_are_said_and_hide_no_others(tmp_path: Path) -> None:
    make_run(tmp_path, "good")
    bad = make_run(tmp_path, "bad")
    (bad.path / "config.toml").write_text("[data]\nnewkey = 1\n")
    runs, unreadable = find_runs(tmp_path)
    assert [run.folder.name for run in runs] == ["good"]
    assert len(unreadable) == 1
    assert "bad" in unreadable[0]
    assert find_runs(tmp_path / "nowhere") == ([], [])


def test_a_finished_run_is_read_with_the_rows_own_targets(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "ended", epochs=2, ended=True)
    row = Row("a", configs.load("paper-simulator"))
    run = next(iter(find_runs(tmp_path)[0]))
    assert finished(run, row).config.run.targets == (85.0, 88.0)
    (folder.path / "summary.json").unlink()
    with pytest.raises(RunError, match="has not finished; go on with: gcpsl runs resume"):
        finished(run, row)
