"""What a run must find again when it resumes: its data and its model. Knows fingerprints, never what they are of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gcpsl.data import FederatedData
from gcpsl.errors import RunError
from gcpsl.runs import RunFolder

if TYPE_CHECKING:
    from gcpsl.models import SplitModel

FILE = "identity.json"


@dataclass(frozen=True)
class Identity:
    """Hashes of all samples with their owners, and of the segments' tensor names and shapes."""

    data: str
    model: str
    given: tuple[str, ...]
    """Which of dataset, model and rule were the caller's own objects."""

    @classmethod
    def of(cls, data: FederatedData, model: SplitModel, given: Iterable[str]) -> Identity:
        arrays: list[Any] = [data.owners]
        for samples in (data.train, data.validation, data.test):
            arrays += [samples.images, samples.labels]
        shapes = [f"{name} {tuple(tensor.shape)}" for name, tensor in model.state_dict().items()]
        owners = np.array(data.fleet.ids, dtype=np.str_)
        return cls(_hash_arrays([*arrays, owners]), _hash_text(shapes), tuple(given))

    def keep(self, folder: RunFolder) -> None:
        """Store it with a new run; refuse to go on with a run that began with something else."""
        stored = folder.read_json(FILE)
        if stored is None:
            folder.write_json(FILE, asdict(self))
            return
        missing = [name for name in stored["given"] if name not in self.given]
        if missing:
            words = ", ".join(f"{name}=..." for name in stored["given"])
            raise RunError(
                f"the run '{folder.path}' began with a {' and a '.join(missing)} of the caller's own; "
                f"continue it from Python with: gcpsl.resume('{folder.path}', {words})"
            )
        for what in ("data", "model"):
            if stored[what] != getattr(self, what):
                raise RunError(
                    f"the {what} of the run '{folder.path}' is not what it began with, so it can't be continued; "
                    f"restore the {what}, or start a new run"
                )


def _hash_arrays(arrays: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _hash_text(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
