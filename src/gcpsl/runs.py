"""The run folder: what a run leaves behind, written so that no crash can damage it.

    config.toml         the resolved settings            environment.json    versions, device, commit
    assignment.json     client -> cluster, objective     epochs.jsonl        one line of metrics per epoch
    checkpoints/        the last two, a shard a rank     summary.json        written when the run has ended
    model.safetensors   the fused model at the end       best.safetensors    at the best validation accuracy
    identity.json       fingerprints of data and model

Every file but epochs.jsonl is written beside its place and renamed into it. Knows nothing of training.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
MANIFEST = "manifest.json"


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
            cls.refuse_existing(path)
        except OSError as error:
            raise RunError(
                f"can't create the run folder '{path}': {error.strerror or error}; choose another run.root"
            ) from None
        folder = cls(path)
        write_atomically(path / "config.toml", configs.to_toml(config).encode())
        folder.write_json("environment.json", environment)
        return folder

    @staticmethod
    def refuse_existing(path: Path) -> None:
        """Raises if something is there."""
        if not path.exists():
            return
        interrupted = (path / "config.toml").is_file() and not (path / "summary.json").exists()
        otherwise = f", or continue it with: gcpsl runs resume {path}" if interrupted else ""
        raise RunError(f"the run folder '{path}' exists already; choose another run.name, remove it{otherwise}")

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

    def save_shard(self, rounds_done: int, rank: int, ranks: int, tensors: Mapping[str, Tensor]) -> str:
        """Write one rank's part of a checkpoint. Returns what `complete_checkpoint` needs to know of it."""
        folder = self._checkpoint(rounds_done)
        with _naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
        content = self._save_tensors(folder / _shard_name(rank, ranks), tensors, {})
        return hashlib.sha256(content).hexdigest()

    def complete_checkpoint(self, rounds_done: int, digests: Sequence[str], meta: Mapping[str, Any]) -> None:
        """All shards are there: make it the newest, and drop all but a few. Until then it doesn't count."""
        shards = {_shard_name(rank, len(digests)): digest for rank, digest in enumerate(digests)}
        folder = self._checkpoint(rounds_done)
        write_atomically(folder / MANIFEST, json.dumps({"shards": shards, "run": meta}).encode())
        kept = self._checkpoints()[:KEPT_CHECKPOINTS]
        for other in (self.path / "checkpoints").iterdir():
            if other not in kept:
                shutil.rmtree(other)

    def newest_checkpoint(self) -> str | None:
        """The name of the newest complete checkpoint whose shards are as they were written; None if there is none."""
        failures = []
        for folder in self._checkpoints():
            try:
                for name, digest in json.loads((folder / MANIFEST).read_text())["shards"].items():
                    if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                        raise ValueError(f"{name} is damaged")
                return folder.name
            except (OSError, ValueError, KeyError, AttributeError) as error:
                failures.append(f"{folder.name}: {error}")
        if failures:
            raise RunError(f"no checkpoint in '{self.path}' can be read: {'; '.join(failures)}")
        return None

    def load_checkpoint(self, name: str, wanted: Callable[[str], bool] = lambda _: True) -> Checkpoint:
        """The tensors that are wanted, by their names, of a checkpoint that `newest_checkpoint` named."""
        from safetensors import safe_open

        folder = self.path / "checkpoints" / name
        manifest = json.loads((folder / MANIFEST).read_text())
        tensors: dict[str, Tensor] = {}
        for shard in manifest["shards"]:
            with safe_open(folder / shard, framework="pt") as file:
                tensors |= {key: file.get_tensor(key) for key in file.keys() if wanted(key)}  # noqa: SIM118
        return Checkpoint(tensors, manifest["run"])

    def _checkpoint(self, rounds_done: int) -> Path:
        return self.path / "checkpoints" / f"rounds-{rounds_done:012d}"

    def _checkpoints(self) -> list[Path]:
        """The complete ones, newest first."""
        return sorted((m.parent for m in (self.path / "checkpoints").glob(f"rounds-*/{MANIFEST}")), reverse=True)

    def drop_checkpoints(self) -> None:
        """A finished run can't be resumed, and its model is kept apart."""
        for other in (self.path / "checkpoints").iterdir():
            shutil.rmtree(other)

    def save_model(self, name: str, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        self._save_tensors(self.path / f"{name}.safetensors", tensors, about)

    @staticmethod
    def _save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> bytes:
        from safetensors.torch import save

        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        # under one key, because the library writes several in any order, and equal runs should leave equal files
        content = save(contiguous, {"about": json.dumps(dict(meta))} if meta else None)
        write_atomically(path, content)
        return content


def _shard_name(rank: int, ranks: int) -> str:
    return f"{rank}-of-{ranks}.safetensors"


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
