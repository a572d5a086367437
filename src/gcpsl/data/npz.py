"""The user's own arrays from one .npz file: x_train, y_train, x_test, y_test."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcpsl.data.dataset import Dataset, Samples, channels_first, check_labels, class_count, naming
from gcpsl.errors import DataError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
# what reading a damaged archive raises; RuntimeError is encryption and unknown compression
_DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    LookupError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def npz(root: Path) -> Dataset:
    """`root` is the file, or a folder that holds exactly one .npz.

    Images are uint8 or float32: [n, h, w], [n, c, h, w], [n, h, w, c] or [n, features], read as
    `dataset.channels_first` says. Labels are integers; there is one class more than the largest training label.
    """
    path = _find(root)
    arrays = _read(path)
    train, test = (_samples(path, arrays, split) for split in ("train", "test"))
    with naming(f"y_train of '{path}'"):
        classes = class_count(train.labels)
    with naming(f"y_test of '{path}'"):
        check_labels(test.labels, classes)
    return Dataset(f"'{path}'", classes, train, test)


def _find(root: Path) -> Path:
    if root.is_file():
        return root
    files = sorted(root.glob("*.npz"))
    if len(files) != 1:
        raise DataError(
            f"data.name = 'npz' needs one .npz file, but '{root}' "
            + (f"holds {len(files)}" if root.is_dir() else "does not exist")
            + "; set data.root to the file"
        )
    return files[0]


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not zipfile.is_zipfile(path):
        raise DataError(f"'{path}' is not an .npz file (numpy.savez makes one), or is truncated")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in ARRAYS if name not in file]
            if missing:
                raise DataError(
                    f"'{path}' has no {', '.join(missing)}; it has {', '.join(file)}, and needs {', '.join(ARRAYS)}"
                )
            return {name: file[name] for name in ARRAYS}
    except _DAMAGE as error:
        raise DataError(f"can't read '{path}' as an .npz of plain arrays: {error}") from None


def _samples(path: Path, arrays: dict[str, NDArray[Any]], split: str) -> Samples:
    images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    with naming(f"x_{split} of '{path}'"):
        images = channels_first(images)
    with naming(f"y_{split} of '{path}'"):
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise DataError(
                f"labels are {labels.dtype} of shape {list(labels.shape)}; they must be one integer per image"
            )
    with naming(f"x_{split}, y_{split} of '{path}'"):
        samples = Samples(images, labels.astype(np.int64))
        if not len(samples):
            raise DataError(
                f"there are no {'training' if split == 'train' else 'test'} samples; at least one is needed"
            )
    return samples
