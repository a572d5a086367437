"""Optional experiment trackers beside the run folder: TensorBoard and MLflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol

from gcpsl.config import Config
from gcpsl.errors import ConfigError
from gcpsl.records import EpochRecord
from gcpsl.runs import RunFolder

Say = Callable[[str], None]
MODULES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}


class Tracker(Protocol):
    def log(self, record: EpochRecord) -> None: ...

    def close(self, *, finished: bool) -> None: ...


class TensorBoard:
    """Event files in the run folder, one scalar per number of an epoch."""

    def __init__(self, folder: RunFolder, first_epoch: int) -> None:
        writer = _module("tensorboard").SummaryWriter
        self._writer = writer(str(folder.path / "tensorboard"), purge_step=first_epoch)

    def log(self, record: EpochRecord) -> None:
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, record.epoch)

    def close(self, *, finished: bool) -> None:  # noqa: ARG002 - event files know no end
        self._writer.close()


class MLflow:
    """One MLflow run, where MLFLOW_TRACKING_URI says; a resumed run continues the one it began.

    Training does not depend on it: once MLflow fails, it is told of once and then left alone.
    """

    def __init__(self, config: Config, folder: RunFolder, say: Say) -> None:
        self._say = say
        self._client: Any = _module("mlflow").MlflowClient()
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
            self._try("log_metric", name, value, step=record.epoch)

    def close(self, *, finished: bool) -> None:
        self._try("set_terminated", "FINISHED" if finished else "KILLED")

    def _try(self, call: str, *words: object, **named: object) -> None:
        if self._client is None:
            return
        try:
            getattr(self._client, call)(self._run_id, *words, **named)
        except Exception as error:  # noqa: BLE001 - it raises anything, bare Exception included
            self._client = None
            self._say(f"MLflow failed, and is told no more of this run: {error}")


def check_trackers(config: Config) -> None:
    """Raise ConfigError now if a tracker that the config names can't be had or reached."""
    for name in config.run.track:
        module = _module(name)
        if name == "mlflow":
            try:
                module.MlflowClient().search_experiments(max_results=1)
            except (module.MlflowException, OSError) as error:
                raise ConfigError(
                    f"run.track names 'mlflow', but no MLflow store answers at {module.get_tracking_uri()}: {error}; "
                    "set MLFLOW_TRACKING_URI to your server, or install mlflow in full to keep a local store"
                ) from None


def open_trackers(config: Config, folder: RunFolder, first_epoch: int, say: Say) -> list[Tracker]:
    """The trackers that the config names, to be told of the epochs from `first_epoch` on."""
    return [
        TensorBoard(folder, first_epoch) if name == "tensorboard" else MLflow(config, folder, say)
        for name in config.run.track
    ]


def _module(name: str) -> Any:
    try:
        return import_module(MODULES[name])
    except ImportError:
        raise ConfigError(
            f"run.track names '{name}', which isn't installed; install it with: pip install 'gcpsl[track]'"
        ) from None


def _scalars(record: EpochRecord) -> Iterator[tuple[str, float]]:
    for name, value in record.to_json().items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            yield name, value
