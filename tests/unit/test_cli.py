"""The command line as a person or a script meets it: output, exit codes, messages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gcpsl import __version__, cli
from gcpsl.errors import GcpslError

SMALL = ("partition.clients=8", "schedule.workloads=2", "train.epochs=2", "model.name=mlp", "runtime.threads=1")
Gcpsl = Callable[..., Result]


@pytest.fixture
def gcpsl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gcpsl:
    """Runs a command in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli.app, [str(word) for word in words])


def failed(*words: str, cwd: Path) -> tuple[int, str]:
    """Exit code and standard error of the real program."""
    done = subprocess.run([sys.executable, "-m", "gcpsl", *words], capture_output=True, text=True, cwd=cwd, check=False)
    return done.returncode, done.stderr


def test_training_prints_an_epoch_a_line_and_a_summary(gcpsl: Gcpsl) -> None:
    result = gcpsl("train", *SMALL, "run.name=first")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("digits: 1,294 samples on 8 clients, 2 workloads x batch 16, model mlp")
    assert lines[1] == "run folder runs/first"
    assert lines[2].startswith("epoch 1/2  loss ")
    for words in ("test accuracy", "participation", "schedule speed-up", "ideal", "real", "payload", "runs/first"):
        assert words in result.output


def test_json_is_one_object_a_line(gcpsl: Gcpsl) -> None:
    result = gcpsl("train", *SMALL, "--json")
    events = [json.loads(line) for line in result.output.splitlines()]
    assert [event["event"] for event in events] == ["epoch", "epoch", "summary"]
    assert events[-1]["test_accuracy"] == events[1]["test_accuracy"]


def test_runs_are_listed_and_shown(gcpsl: Gcpsl) -> None:
    assert "no runs in 'runs'" in gcpsl("runs", "list").output
    gcpsl("train", *SMALL, "run.name=first")
    listed = gcpsl("runs", "list").output
    assert "first" in listed
    assert "finished" in listed
    assert "2/2" in listed
    (entry,) = json.loads(gcpsl("runs", "list", "--json").output)
    assert entry["run"] == "first"
    shown = gcpsl("runs", "show", "first").output
    assert 'model.name = "mlp"' in shown
    assert "test accuracy" in shown
    assert json.loads(gcpsl("runs", "show", "runs/first", "--json").output)["summary"]["epochs"] == 2


def test_a_damaged_run_does_not_hide_the_others(gcpsl: Gcpsl, tmp_path: Path) -> None:
    gcpsl("train", *SMALL, "run.name=good")
    gcpsl("train", *SMALL, "run.name=bad")
    (tmp_path / "runs" / "bad" / "epochs.jsonl").write_text("garbage\n")
    listed = gcpsl("runs", "list").output
    assert "damaged" in listed
    assert "finished" in listed
    assert [run["status"] for run in json.loads(gcpsl("runs", "list", "--json").output)] == ["finished", "damaged"]


def test_an_interrupted_run_is_shown_with_the_way_on(gcpsl: Gcpsl, tmp_path: Path) -> None:
    gcpsl("train", *SMALL, "run.name=first", "train.epochs=12")
    (tmp_path / "runs" / "first" / "summary.json").unlink()
    shown = gcpsl("runs", "show", "first").output
    assert "interrupted" in shown
    assert "gcpsl runs resume runs/first" in shown
    assert "..." in shown
    assert gcpsl("runs", "resume", "first").exit_code == 0


def test_a_plan_answers_as_a_table_json_and_plot(gcpsl: Gcpsl, tmp_path: Path) -> None:
    result = gcpsl("plan", "-n", "2,4", "--rules", "random,label_aware", "--plot", "plan.png")
    assert result.exit_code == 0, result.output
    assert "label_aware" in result.output
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads(gcpsl("plan", "-n", "2,4", "--json").output)["rows"]
    assert {row["workloads"] for row in rows} == {1, 2, 4}


def test_a_plan_for_a_fleet_file_knows_the_models_payload_where_the_data_set_is_known(
    gcpsl: Gcpsl, tmp_path: Path
) -> None:
    (tmp_path / "fleet.csv").write_text("client,count,cat,dog\n" + "".join(f"c{i},5,2,3\n" for i in range(40)))
    rows = json.loads(gcpsl("plan", "--fleet", "fleet.csv", "--json").output)["rows"]
    assert rows[0]["payload"]["real_bytes"] > 0
    (tmp_path / "counts.csv").write_text("client,count\n" + "".join(f"c{i},5\n" for i in range(40)))
    assert gcpsl("plan", "--fleet", "counts.csv").exit_code == 0


def test_a_partition_is_shown_and_drawn(gcpsl: Gcpsl, tmp_path: Path) -> None:
    result = gcpsl("data", "show", "partition.kind=iid", "--plot", "partition.png")
    assert result.exit_code == 0, result.output
    assert "64" in result.output
    assert (tmp_path / "partition.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(gcpsl("data", "show", "--json").output)["clients"] == 64


def test_the_version_is_printed(gcpsl: Gcpsl) -> None:
    assert gcpsl("--version").output.strip() == f"gcpsl {__version__}"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "worklods=3"], 2, "did you mean 'schedule.workloads'?"),
        (["train", "nowhere.toml"], 2, "no config file 'nowhere.toml'"),
        (["train", "quickstart", "paper-real"], 2, "neither a second file nor key=value"),
        (["plan", "-n", "two"], 2, "write whole numbers"),
        (["plan", "--rules", "clever"], 2, "clever"),
        (["train", "data.name=cifar10", "data.root=/nowhere"], 3, "gcpsl data get cifar10"),
        (["train", "partition.classes_per_client=11"], 2, "partition.classes_per_client"),
        (["plan", "--fleet", "nowhere.csv"], 3, "nowhere.csv"),
        (["data", "get", "cifar11"], 2, "cifar10"),
        (["runs", "show", "nothing"], 4, "no run at 'runs/nothing'"),
        (["runs", "resume", "nothing"], 4, "no run at 'runs/nothing'"),
        (["train", "--fast"], 2, "No such option"),
        (["trian"], 2, "No such command"),
    ],
)
def test_every_mistake_has_its_message_and_exit_code(
    words: list[str], code: int, message: str, gcpsl: Gcpsl, tmp_path: Path
) -> None:
    result = gcpsl(*words)
    if isinstance(result.exception, GcpslError):
        assert message in str(result.exception)
        assert result.exception.exit_code == code
    else:
        assert result.exit_code == code
        assert message in result.output
    assert not (tmp_path / "runs").exists()


def test_the_program_prints_the_message_without_a_traceback(tmp_path: Path) -> None:
    code, message = failed("train", "seed=-1", cwd=tmp_path)
    assert code == 2
    assert message == "gcpsl: seed = -1: must be at least 0\n"


@pytest.mark.parametrize(
    "words",
    [["--help"], ["plan"], ["plan", "paper-simulator", "--help"], ["data", "show"], ["study", "status", "fusion"]],
)
def test_help_and_plans_import_neither_torch_nor_sklearn(words: list[str], tmp_path: Path) -> None:
    watch = (
        "import sys; from gcpsl.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "assert not {'torch', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", watch, *words], check=True, capture_output=True, cwd=tmp_path)


def test_a_root_or_run_that_is_none_is_refused(tmp_path: Path) -> None:
    code, message = failed("runs", "list", "--root", "nowhere", cwd=tmp_path)
    assert code == 2
    assert "--root = 'nowhere' is no folder" in message
    assert failed("runs", "show", "", cwd=tmp_path)[0] == 2
