"""CIFAR-10 and CIFAR-100 from the official python (pickle) and binary layouts.

A pickle can run code, so only what these files need is let through.
"""

from __future__ import annotations

import io
import pickle
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gcpsl.data.dataset import Dataset, Samples, check_labels
from gcpsl.data.folders import get_command, locate
from gcpsl.errors import DataError

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """How one of the two is laid out: its files, the images in each, and what they are called.

    `label_bytes` stand before each image of a binary file, the label last.
    """

    name: str
    classes: int
    python_folder: str
    binary_folder: str
    train: tuple[str, ...]
    train_images: int
    test: str
    test_images: int
    label_key: bytes
    label_bytes: int


CIFAR10 = Layout(
    name="cifar10",
    classes=10,
    python_folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{part}" for part in range(1, 6)),
    train_images=10_000,
    test="test_batch",
    test_images=10_000,
    label_key=b"labels",
    label_bytes=1,
)
CIFAR100 = Layout(
    name="cifar100",
    classes=100,
    python_folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    train=("train",),
    train_images=50_000,
    test="test",
    test_images=10_000,
    label_key=b"fine_labels",
    label_bytes=2,
)


def load_cifar(layout: Layout, root: Path) -> Dataset:
    """`root` is the data's own folder or the one that holds it. CIFAR-100 has its 100 fine labels.

    A file that is missing, damaged or not whole is a DataError with the command that mends it.
    """
    get = get_command(layout.name, root, layout.python_folder)
    found = locate(
        layout.name,
        root,
        # first where `get` puts it, so that what it brings is what is read
        (
            f"{layout.python_folder}/{layout.test}",
            layout.test,
            f"{layout.binary_folder}/{layout.test}.bin",
            f"{layout.test}.bin",
        ),
        get,
    )
    parts = [_read(layout, found.with_name(file + found.suffix), layout.train_images, get) for file in layout.train]
    train = Samples(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))
    return Dataset(layout.name, layout.classes, train, _read(layout, found, layout.test_images, get))


cifar10 = partial(load_cifar, CIFAR10)
cifar100 = partial(load_cifar, CIFAR100)


def _read(layout: Layout, path: Path, images: int, get: str) -> Samples:
    """The samples of one file, all of them."""
    try:
        content = path.read_bytes()
        pixels, labels = (_binary if path.suffix == ".bin" else _python)(layout, content)
        if len(pixels) != images:
            raise DataError(f"it has {len(pixels)} images, the official file {images}")
        samples = Samples(pixels.reshape(-1, *SHAPE), labels.astype(np.int64))
        check_labels(samples.labels, layout.classes)
    except OSError as error:
        raise DataError(f"can't read '{path}': {error.strerror}; get it again ({get})") from None
    except DataError as error:
        raise DataError(f"'{path}' is truncated or damaged: {error}; get it again ({get})") from None
    except _DAMAGE as error:
        raise DataError(
            f"'{path}' is truncated or damaged ({type(error).__name__}: {error}); get it again ({get})"
        ) from None
    return samples


def _binary(layout: Layout, content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    record = layout.label_bytes + PIXELS
    if len(content) % record:
        raise DataError(f"{len(content)} bytes are not a whole number of {record}-byte records")
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    return table[:, layout.label_bytes :], table[:, layout.label_bytes - 1]


def _python(layout: Layout, content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    # the official files are from Python 2, whose strings are bytes
    batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    pixels, labels = _bytes_of(batch[b"data"]), np.asarray(batch[layout.label_key])
    if labels.dtype.kind not in "iu":
        raise DataError("its labels are not integers")
    return pixels, labels


class _Inert:
    """Stands for whatever NumPy object a file describes: keeps what it is given and runs nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, codec: str) -> bytes:
    """How Python 3 writes bytes into the pickle protocol that Python 2 can read."""
    if codec != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec {codec}")
    return text.encode("latin1")


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Inert,
    ("numpy._core.multiarray", "_reconstruct"): _Inert,
    ("numpy", "ndarray"): _Inert,
    ("numpy", "dtype"): _Inert,
    ("_codecs", "encode"): _encode,
}
# what unpickling damaged bytes raises, and then reading fields that aren't there
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    struct.error,
)


# Python's own unpickler, because the C one takes gigabytes for a damaged memo index; a file takes it 10 ms
class _ArraysOnly(pickle._Unpickler):
    """Arrays, lists, dictionaries, strings and numbers; nothing that could run."""

    # a byte array is allocated before it is read, however long a damaged file says that it is
    dispatch: ClassVar = {code: run for code, run in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file needs")
        return _ALLOWED[module, name]


def _bytes_of(array: _Inert) -> NDArray[np.uint8]:
    """The array that a file describes, if it is one of rows of pixels."""
    _, (rows, columns), dtype, fortran_order, content = array.state
    if dtype.arguments[0] not in ("u1", b"u1") or columns != PIXELS or fortran_order:
        raise DataError(f"it does not hold rows of {PIXELS} unsigned bytes")
    return np.frombuffer(content, np.uint8).reshape(rows, columns).copy()
