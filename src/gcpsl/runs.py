"""The run folder: what a run leaves behind, written so that no crash can damage it.

    config.toml         the resolved settings            environment.json    versions, device, commit
    assignment.json     client -> cluster, objective     epochs.jsonl        one line of metrics per epoch
    checkpoints/        the last two                     summary.json        written when the run has ended
    model.safetensors   the fused model at the end       best.safetensors    at the best validation accuracy
    identity.json       fingerprints of data and model

Every file but epochs.jsonl is written beside its place and renamed into it. Knows nothing of training.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.errors import ConfigError, RunError, nearest

if TYPE_CHECKING:
    from torch import Tensor

KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class Checkpoint:
    """A run at one moment: tensors, and the counters and history that go with them."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: Config, environment: Mapping[str, Any]) -> RunFolder:
        """A new folder holding the resolved settings. An existing one is never written over."""
        name = config.run.name or _name_from_time(config.run.root)
        path = config.run.root / name
        try:
            path.mkdir(parents=True)
            (path / "checkpoints").mkdir()
        except FileExistsError:
            raise RunError(
                f"the run folder '{path}' exists already; choose another run.name, remove it, "
                f"or continue it with: gcpsl runs resume {path}"
            ) from None
        except OSError as error:
            raise RunError(f"can't create the run folder '{path}': {error}; choose another run.root") from None
        folder = cls(path)
        write_atomically(path / "config.toml", configs.to_toml(config).encode())
        folder.write_json("environment.json", environment)
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.toml").is_file():
            others = [run.path.name for run in list_runs(path.parent)]
            hint = nearest(path.name, others) if others else "there are no runs there yet"
            raise RunError(f"no run at '{path}': {hint}")
        return cls(path)

    @property
    def name(self) -> str:
        return self.path.name

    def config(self) -> Config:
        try:
            return configs.load(self.path / "config.toml")
        except ConfigError as error:
            raise RunError(f"'{self.path / 'config.toml'}' can't be used by this version: {error}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held while a process trains here, and released by the kernel however that process ends."""
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"another process is training in '{self.path}'") from None
            yield

    def is_running(self) -> bool:
        try:
            with (self.path / ".lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise RunError(f"'{self.path / name}' is damaged: {error}") from None
        return value

    def epochs(self) -> list[dict[str, Any]]:
        """The epochs logged so far; a last line torn by a crash does not count."""
        try:
            lines = (self.path / "epochs.jsonl").read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        try:
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise RunError(f"'{self.path / 'epochs.jsonl'}' is damaged: {error}") from None

    def log_epoch(self, record: Mapping[str, Any]) -> None:
        path = self.path / "epochs.jsonl"
        with _naming(path), path.open("a") as log:
            log.write(json.dumps(record, allow_nan=False) + "\n")

    def keep_epochs(self, records: list[dict[str, Any]]) -> None:
        """Drop the lines after a checkpoint: resuming writes them again."""
        text = "".join(json.dumps(record) + "\n" for record in records)
        write_atomically(self.path / "epochs.jsonl", text.encode())

    def save_checkpoint(self, checkpoint: Checkpoint, rounds_done: int) -> None:
        """Write it under a name that sorts by progress, and drop all but the newest."""
        path = self.path / "checkpoints" / f"rounds-{rounds_done:012d}.safetensors"
        path.parent.mkdir(exist_ok=True)
        self._save_tensors(path, checkpoint.tensors, {"run": json.dumps(checkpoint.meta)})
        for old in self._checkpoint_paths()[KEPT_CHECKPOINTS:]:
            old.unlink()

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that can be read, or None where there is none."""
        from safetensors import SafetensorError, safe_open

        failures = []
        for path in self._checkpoint_paths():
            try:
                with safe_open(path, framework="pt") as file:
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                    return Checkpoint(tensors, json.loads(file.metadata()["run"]))
            except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
                failures.append(f"{path.name}: {error}")
        if failures:
            raise RunError(f"no checkpoint in '{self.path}' can be read: {'; '.join(failures)}")
        return None

    def _checkpoint_paths(self) -> list[Path]:
        """Newest first."""
        return sorted((self.path / "checkpoints").glob("rounds-*.safetensors"), reverse=True)

    def drop_checkpoints(self) -> None:
        """A finished run can't be resumed, and its model is kept apart."""
        for path in self._checkpoint_paths():
            path.unlink()

    def save_model(self, name: str, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        self._save_tensors(self.path / f"{name}.safetensors", tensors, about)

    @staticmethod
    def _save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> None:
        from safetensors.torch import save

        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_atomically(path, save(contiguous, dict(meta)))


def list_runs(root: Path) -> list[RunFolder]:
    """The runs below a folder, oldest first."""
    found = [RunFolder(entry.parent) for entry in root.glob("*/config.toml")]
    return sorted(found, key=lambda run: (run.path / "config.toml").stat().st_mtime_ns)


def write_atomically(path: Path, content: bytes) -> None:
    """Either the old content or the new is there at any moment, also after a power cut."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _naming(path):
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What the system refuses becomes an error that names the file."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"can't write '{path}': {error.strerror or error}; mend that, then continue with: gcpsl runs resume"
        ) from None


def _name_from_time(root: Path) -> str:
    """The time to the second, with a number behind it where that is taken."""
    name = time.strftime("%Y%m%d-%H%M%S")
    taken = sum(1 for _ in root.glob(f"{name}*"))
    return f"{name}-{taken + 1}" if taken else name
