"""Runs can also be followed in TensorBoard and MLflow."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RECORD

import gcpsl
from gcpsl.config import Config
from gcpsl.data import Dataset
from gcpsl.errors import ConfigError
from gcpsl.runs import RunFolder
from gcpsl.tracking import MLflow


def test_tensorboard_has_every_epochs_numbers(small: Callable[..., Config], dataset: Dataset) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = gcpsl.train(small('run.track=["tensorboard"]'), dataset=dataset)
    events = accumulator.EventAccumulator(str(result.path / "tensorboard"))
    events.Reload()
    logged = [event.value for event in events.Scalars("test_accuracy")]
    assert logged == pytest.approx([record.test_accuracy for record in result.epochs])


def test_mlflow_has_the_settings_and_every_epochs_numbers(
    small: Callable[..., Config], dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    result = gcpsl.train(small('run.track=["mlflow"]'), dataset=dataset)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("gcpsl")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["schedule.workloads"] == "2"
    history = client.get_metric_history(run.info.run_id, "test_accuracy")
    assert [metric.value for metric in history] == pytest.approx([r.test_accuracy for r in result.epochs])


def test_an_mlflow_store_that_does_not_answer_is_named_before_a_run_begins(
    small: Callable[..., Config], dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'no' / 'such.db'}")
    with pytest.raises(ConfigError, match="set MLFLOW_TRACKING_URI to your server"):
        gcpsl.train(small('run.track=["mlflow"]'), dataset=dataset)
    assert not (tmp_path / "runs").exists()


def test_training_goes_on_when_mlflow_fails_in_the_middle(
    small: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    store = tmp_path / "mlruns"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{store}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    said: list[str] = []
    folder = RunFolder.create(small(), {})
    tracker = MLflow(small(), folder, said.append)
    shutil.rmtree(store)
    for _ in range(2):
        tracker.log(RECORD)
    tracker.close(finished=True)
    assert len(said) == 1
    assert "MLflow failed" in said[0]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_tracker_that_is_not_installed_says_how_to_get_it(
    name: str, small: Callable[..., Config], dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    with pytest.raises(ConfigError, match=r"pip install 'gcpsl\[track\]'"):
        gcpsl.train(small(f'run.track=["{name}"]'), dataset=dataset)
