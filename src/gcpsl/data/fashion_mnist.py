"""Fashion-MNIST (or MNIST itself: the layout is the same) from its four IDX files, plain or gzip."""

from __future__ import annotations

import gzip
import math
import zlib
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gcpsl.data.dataset import Dataset, Samples, check_labels, naming
from gcpsl.data.folders import get_command, locate
from gcpsl.errors import DataError

CLASSES = 10
# where `get` puts it, so that what it brings is what is read; the data's own folder; torchvision's
FOLDERS = ("fashion-mnist/", "", "FashionMNIST/raw/")


def fashion_mnist(root: Path) -> Dataset:
    """`root` is the folder of the files (Debian's is /usr/share/datasets/fashion-mnist) or the one that holds it."""
    get = get_command("fashion-mnist", root, "fashion-mnist")
    markers = [f"{folder}train-images-idx3-ubyte{suffix}" for folder, suffix in product(FOLDERS, ("", ".gz"))]
    folder = locate("fashion-mnist", root, markers, get).parent
    try:
        return Dataset("fashion-mnist", CLASSES, _split(folder, "train"), _split(folder, "t10k"))
    except DataError as error:
        raise DataError(f"{error}; get it again ({get})") from None


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes: two zeros, the type 8, the number of dimensions, their sizes, the values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"'{path}' is truncated or damaged ({error})") from None
    except OSError as error:
        raise DataError(f"can't read '{path}': {error.strerror}") from None
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) < start:
        raise DataError(f"'{path}' is not an IDX file of {dimensions}-dimensional bytes")
    shape = [int(size) for size in np.frombuffer(content[4:start], ">u4")]
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"'{path}' is truncated or damaged: {len(content) - start} bytes of values where its header "
            f"promises {math.prod(shape)}"
        )
    # a copy, because tensors can't share memory that is read-only
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _split(folder: Path, prefix: str) -> Samples:
    images_path, labels_path = (
        _plain_or_gzip(folder / f"{prefix}-{rest}") for rest in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1).astype(np.int64)
    with naming(f"'{labels_path}'"):
        check_labels(labels, CLASSES)
        return Samples(images[:, None], labels)


def _plain_or_gzip(path: Path) -> Path:
    return path if path.is_file() else path.with_name(path.name + ".gz")
