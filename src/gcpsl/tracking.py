"""Optional experiment trackers beside the run folder: TensorBoard and MLflow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

from gcpsl.config import Config
from gcpsl.errors import ConfigError
from gcpsl.records import EpochRecord
from gcpsl.runs import RunFolder


class Tracker(Protocol):
    def log(self, record: EpochRecord) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run folder, one scalar per number of an epoch."""

    def __init__(self, folder: RunFolder, first_epoch: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._writer: Any = SummaryWriter(str(folder.path / "tensorboard"), purge_step=first_epoch)

    def log(self, record: EpochRecord) -> None:
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, record.epoch)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """One MLflow run, where MLFLOW_TRACKING_URI says; a resumed run continues the one it began."""

    def __init__(self, config: Config, folder: RunFolder) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise _missing("mlflow") from None
        self._client = MlflowClient()
        begun = folder.read_json("mlflow.json")
        self._run_id: str = begun["run_id"] if begun else self._begin(config, folder)

    def _begin(self, config: Config, folder: RunFolder) -> str:
        found = self._client.get_experiment_by_name("gcpsl")
        experiment = found.experiment_id if found else self._client.create_experiment("gcpsl")
        run_id: str = self._client.create_run(experiment, run_name=folder.name).info.run_id
        for section, values in config.model_dump(mode="json").items():
            settings = values.items() if isinstance(values, dict) else [("", values)]
            for key, value in settings:
                self._client.log_param(run_id, f"{section}.{key}".rstrip("."), value)
        folder.write_json("mlflow.json", {"run_id": run_id})
        return run_id

    def log(self, record: EpochRecord) -> None:
        for name, value in _scalars(record):
            self._client.log_metric(self._run_id, name, value, step=record.epoch)

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


def open_trackers(config: Config, folder: RunFolder, first_epoch: int) -> list[Tracker]:
    """The trackers that the config names, to be told of the epochs from `first_epoch` on."""
    return [
        TensorBoard(folder, first_epoch) if name == "tensorboard" else MLflow(config, folder)
        for name in config.run.track
    ]


def _missing(name: str) -> ConfigError:
    return ConfigError(f"run.track names '{name}', which isn't installed; install it with: pip install 'gcpsl[track]'")


def _scalars(record: EpochRecord) -> Iterator[tuple[str, float]]:
    for name, value in record.to_json().items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            yield name, value
