"""`gcpsl study` as a person or a script meets it: what is trained, reused, left to others, and reported."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import gcpsl
from gcpsl import cli
from gcpsl import config as configs
from gcpsl.errors import GcpslError
from gcpsl.studies import paper_studies, run_key, runner
from gcpsl.studies.own import find_study
from gcpsl.studies.places import places
from gcpsl.studies.progress import StudyLines
from gcpsl.studies.runner import Runner
from gcpsl.studies.tasks import claimed, standings, study_root, tasks
from gcpsl.studies.worker import Place

GRID = """
seeds = [0, 1]
[settings]
partition.clients = 8
model.name = "mlp"
train.epochs = 2
[rows.two]
schedule.workloads = 2
[rows.one]
schedule.workloads = 1
"""
TOO_FAST = "[rows.fast]\noptimizer.lr = 1e30\n"
SMOKE_RUNS = 27  # those of cifar100 are digits too, and three are other rows then
Words = Callable[..., Result]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Words:
    """Runs `gcpsl study ...` in a folder of the test's own that holds a grid."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(GRID)
    return lambda *words: CliRunner().invoke(cli.app, ["study", *words])


def state(study: Words, *words: str) -> dict[str, Any]:
    result = study("status", "grid.toml", *words, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def run_folders(root: Path) -> list[Path]:
    return sorted(file.parent for file in root.rglob("config.toml"))


def test_a_study_trains_each_run_once_and_reuses_it_wherever_it_lies(study: Words, tmp_path: Path) -> None:
    result = study("run", "grid.toml")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("4 runs: 0 finished already, 4 to train")
    assert lines[-1] == "All 4 runs have finished."
    assert sum(": finished, test " in line for line in lines) == 4
    assert next(line for line in lines if "started" in line) == "two seed 0: started"
    folders = run_folders(tmp_path / "runs")
    assert len(folders) == 4
    shutil.move(folders[0], tmp_path / "runs" / "deep" / "er")
    assert study("run", "grid.toml").output == "All 4 runs have finished already.\n"
    assert len(run_folders(tmp_path / "runs")) == 4
    answer = state(study)
    assert answer["counts"] == {"finished": 4, "running": 0, "failed": 0, "interrupted": 0, "missing": 0}
    assert {entry["epochs"] for entry in answer["runs"]} == {2}
    assert "4 runs: 4 finished" in study("status", "grid.toml").output


def test_a_run_that_was_trained_by_hand_is_reused_and_overrides_make_others(study: Words, tmp_path: Path) -> None:
    words = ("partition.clients=8", "model.name=mlp", "train.epochs=1", "schedule.workloads=2")
    gcpsl.train(None, *words, "run.name=by-hand", "run.root=elsewhere")
    chosen = ("--rows", "two", "--seeds", "0", "--root", "elsewhere")
    (entry,) = state(study, *chosen, "train.epochs=1")["runs"]
    assert (entry["status"], entry["path"]) == ("finished", "elsewhere/by-hand")
    (entry,) = state(study, *chosen)["runs"]
    assert (entry["status"], entry["path"], entry["epochs_asked"]) == ("missing", None, 2)


def test_a_failed_run_is_reported_and_does_not_stop_the_rest(study: Words, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID + TOO_FAST)
    result = study("run", "grid.toml", "--seeds", "0", "--jobs", "1", "--rows", "fast,two")
    assert isinstance(result.exception, GcpslError)
    assert result.exception.exit_code == 4
    message = str(result.exception)
    assert message.startswith("1 of 2 runs failed\nfast seed 0 (log: runs/study-logs/")
    assert "training has diverged; start again with a lower optimizer.lr" in message
    assert "fast seed 0: FAILED: the loss became" in result.output
    assert "two seed 0: finished" in result.output
    answer = state(study, "--seeds", "0", "--rows", "fast,two")
    assert {entry["row"]: entry["status"] for entry in answer["runs"]} == {"two": "finished", "fast": "failed"}
    assert "fast seed 0 failed: the loss became" in study("status", "grid.toml").output


def test_a_run_of_another_process_is_waited_for_and_taken_over_if_that_one_dies(
    study: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOOK_AGAIN_S", 0.1)
    (task,) = tasks(find_study("grid.toml").only(["two"]), [0])
    with claimed(task.log) as free:
        assert free
        assert state(study, "--rows", "two", "--seeds", "0")["counts"]["running"] == 1
        alive = threading.Event()
        holder = threading.Thread(target=_hold, args=(task.log, alive))
    holder.start()
    alive.wait()
    result = study("run", "grid.toml", "--rows", "two,one", "--seeds", "0")
    holder.join()
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines.index("one seed 0: started") < lines.index("two seed 0: started")
    assert lines[-1] == "All 2 runs have finished."


def test_where_processes_are_not_forked_a_run_is_the_same(study: Words) -> None:
    """As it is on machines with a GPU."""
    grid = find_study("grid.toml").only(["two"])
    found, _ = standings(tasks(grid, [0]), study_root(grid))
    outcome = Runner(study_root(grid), [Place(forked=False)], StudyLines(Console(quiet=True))).run(found)
    assert (outcome.trained, outcome.failures, outcome.left) == (1, [], 0)
    assert state(study, "--rows", "two", "--seeds", "0")["counts"]["finished"] == 1


def _hold(log: Path, alive: threading.Event) -> None:
    """As a process would that dies after a second and a half."""
    with claimed(log):
        alive.set()
        threading.Event().wait(1.5)


def test_every_paper_study_has_a_smoke_variant_that_runs_and_shares_its_runs(study: Words, tmp_path: Path) -> None:
    for one in paper_studies():
        result = study("run", one.name, "--smoke")
        assert result.exit_code == 0, result.output
    assert len(run_folders(tmp_path / "runs")) == SMOKE_RUNS
    trained = {run_key(configs.load(folder / "config.toml")) for folder in run_folders(tmp_path / "runs")}
    asked = {run_key(row.seeded(0)) for one in paper_studies() for row in one.smoked().chosen()}
    assert trained == asked


def test_the_papers_studies_are_listed(study: Words) -> None:
    lines = study("list").output.splitlines()
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["cluster-count", "10", "30"],
        ["batch-128", "2", "6"],
        ["real-execution", "9", "27"],
    ]
    listed = json.loads(study("list", "--json").output)
    assert {row["row"] for row in listed[0]["rows"] if not row["default"]} == {
        "label-aware-4-printed",
        "label-aware-8-printed",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "clustercount"], "no study 'clustercount': did you mean 'cluster-count'?"),
        (["status", "fusion", "--rows", "nevr"], "no row 'nevr': did you mean 'never'?"),
        (["run", "fusion", "never"], "'never' is no setting; write key=value, and rows as in --rows"),
        (["run", "fusion", "--seeds", "x"], "--seeds = 'x': write whole numbers, as in 0,1,2"),
        (["run", "fusion", "seed=1"], "choose them with --seeds"),
        (["run", "fusion", "train.epoch=1"], "did you mean 'train.epochs'?"),
        (["run", "grid.toml", "--smoke"], "has no smoke variant"),
    ],
)
def test_every_mistake_is_named_before_anything_starts(
    words: list[str], message: str, study: Words, tmp_path: Path
) -> None:
    result = study(*words)
    assert isinstance(result.exception, GcpslError)
    assert message in str(result.exception)
    assert result.exception.exit_code == 2
    assert not (tmp_path / "runs").exists()


def test_as_many_runs_go_on_at_once_as_the_machine_gains_by(study: Words) -> None:
    asked = tasks(find_study("grid.toml"), [0, 1])

    def count(*, timed: bool = False, jobs: int | None = None, gpus: int = 0, cores: int = 8) -> int:
        return len(places(asked, timed=timed, jobs=jobs, gpus=gpus, cores=cores))

    assert (count(cores=2), count(cores=8), count(gpus=1), count(gpus=3)) == (2, 4, 1, 3)
    assert (count(timed=True), count(timed=True, gpus=3), count(jobs=3, gpus=1)) == (1, 3, 3)
    on_gpus = places(asked, timed=True, jobs=None, gpus=2, cores=8)
    assert [place.environment for place in on_gpus] == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    assert not any(place.forked for place in on_gpus)
    assert {place.threads for place in places(asked, timed=False, jobs=2, gpus=0, cores=8)} == {4}
    several = tasks(find_study("grid.toml").only(["two"]).changed("runtime.slots=2"), [0, 1])
    assert [place.environment for place in places(several, timed=False, jobs=None, gpus=2, cores=8)] == [{}]
