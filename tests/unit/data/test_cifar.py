"""CIFAR-10 and CIFAR-100 in both official layouts; a pickle that wants more than arrays is refused."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gcpsl.config import DataConfig
from gcpsl.data import Dataset, load
from gcpsl.data.cifar import PIXELS
from gcpsl.errors import DataError

ROWS = 3
NAMES = {
    "cifar10": ([f"data_batch_{part}" for part in range(1, 6)], "test_batch"),
    "cifar100": (["train"], "test"),
}


def batch(seed: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (ROWS, PIXELS), np.uint8), generator.integers(0, 10, ROWS)


def python3_pickle(name: str, seed: int) -> bytes:
    """As Python 3 writes a file that Python 2 can read."""
    pixels, labels = batch(seed)
    key = b"labels" if name == "cifar10" else b"fine_labels"
    return pickle.dumps({b"data": pixels, key: labels.tolist(), b"coarse_labels": [99] * ROWS}, protocol=2)


def python2_pickle(name: str, seed: int) -> bytes:
    """As Python 2 wrote the official files, whose strings are bytes and whose numpy is old; opcode by opcode."""
    pixels, labels = batch(seed)
    key = b"labels" if name == "cifar10" else b"fine_labels"

    def short(text: bytes) -> bytes:
        return b"U" + bytes((len(text),)) + text

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n(" + short(b"u1") + integer(0) + integer(1) + b"tR"
    dtype += b"(" + integer(3) + short(b"|") + b"NNN" + integer(-1) * 2 + integer(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + integer(0) + b"t" + short(b"b") + b"tR"
    raw: bytes = pixels.tobytes()
    array += b"(" + integer(1) + b"(" + integer(ROWS) + integer(PIXELS) + b"t" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    items = b"](" + b"".join(integer(int(label)) for label in labels) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(key) + items + b"u."


def binary(name: str, seed: int) -> bytes:
    pixels, labels = batch(seed)
    columns = [labels[:, None], pixels] if name == "cifar10" else [np.full((ROWS, 1), 19), labels[:, None], pixels]
    return np.hstack(columns).astype(np.uint8).tobytes()


Writer = Callable[[str, int], bytes]


def write(name: str, folder: Path, content: Writer, suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    train, test = NAMES[name]
    for seed, file in enumerate([*train, test]):
        (folder / (file + suffix)).write_bytes(content(name, seed))
    return folder


def read(name: str, root: Path) -> Dataset:
    return load(DataConfig(name=name, root=root))


LAYOUTS = [
    ("cifar10", "cifar-10-batches-py", python2_pickle, ""),
    ("cifar10", "cifar-10-batches-py", python3_pickle, ""),
    ("cifar10", "cifar-10-batches-bin", binary, ".bin"),
    ("cifar100", "cifar-100-python", python2_pickle, ""),
    ("cifar100", "cifar-100-python", python3_pickle, ""),
    ("cifar100", "cifar-100-binary", binary, ".bin"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "folder", "content", "suffix"), LAYOUTS)
def test_every_official_layout_gives_the_same_samples_from_its_folder_or_the_one_above(
    name: str, folder: str, content: Writer, suffix: str, tmp_path: Path
) -> None:
    write(name, tmp_path / folder, content, suffix)
    parts = [batch(seed) for seed in range(len(NAMES[name][0]))]
    for root in (tmp_path, tmp_path / folder):
        dataset = read(name, root)
        assert dataset.classes == (10 if name == "cifar10" else 100)
        assert np.array_equal(dataset.train.images, np.concatenate([x for x, _ in parts]).reshape(-1, 3, 32, 32))
        assert np.array_equal(dataset.train.labels, np.concatenate([y for _, y in parts]))
        assert np.array_equal(dataset.test.images.reshape(ROWS, -1), batch(len(parts))[0])


def pickled(content: object) -> bytes:
    return pickle.dumps(content, protocol=2)


class Malicious:
    """Writes a file wherever it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_that_would_run_code_is_refused_unrun(tmp_path: Path) -> None:
    folder = write("cifar10", tmp_path / "data", python3_pickle)
    proof = tmp_path / "proof"
    (folder / "data_batch_3").write_bytes(pickled({b"data": Malicious(proof)}))
    with pytest.raises(DataError, match=r"data_batch_3' is truncated or damaged .*which no CIFAR file needs"):
        read("cifar10", folder)
    assert not proof.exists()


PIXEL_ROWS = np.zeros((2, PIXELS), np.uint8)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (python3_pickle("cifar10", 0)[:-100], "truncated or damaged"),
        (b"", "truncated or damaged"),
        (pickled([1, 2]), "truncated or damaged"),
        (pickled({b"data": PIXEL_ROWS}), "truncated or damaged"),
        (pickled({b"data": PIXEL_ROWS[:, 1:], b"labels": [1, 2]}), "rows of 3072 unsigned bytes"),
        (pickled({b"data": PIXEL_ROWS.astype(np.int8), b"labels": [1, 2]}), "rows of 3072 unsigned bytes"),
        (pickled({b"data": PIXEL_ROWS, b"labels": ["a", "b"]}), "labels are not integers"),
        (pickled({b"data": PIXEL_ROWS, b"labels": [1, 10]}), "label 10 in row 1 is out of range"),
        (pickled({b"data": PIXEL_ROWS, b"labels": [1]}), "2 images but 1 labels"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.", "asks for the codec zip"),
    ],
)
def test_a_damaged_python_file_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    folder = write("cifar10", tmp_path, python3_pickle)
    (folder / "data_batch_2").write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read("cifar10", folder)
    assert "data_batch_2" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (binary("cifar10", 0)[:-1], "9218 bytes are not a whole number of 3073-byte records"),
        (b"", "0 bytes are not a whole number"),
        (b"\x0a" + binary("cifar10", 0)[1:], "label 10 in row 0 is out of range"),
    ],
)
def test_a_damaged_binary_file_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    folder = write("cifar10", tmp_path, binary, ".bin")
    (folder / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read("cifar10", folder)
    assert "test_batch.bin" in str(caught.value)


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    folder = write("cifar10", tmp_path, python3_pickle)
    (folder / "data_batch_4").unlink()
    with pytest.raises(DataError, match=r"can't read '.*data_batch_4': No such file"):
        read("cifar10", folder)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 400), junk=st.binary(min_size=1, max_size=8), old=st.booleans(), cut=st.booleans())
def test_damage_anywhere_is_a_data_error_or_harmless(
    position: int, junk: bytes, old: bool, cut: bool, tmp_path: Path
) -> None:
    content = bytearray((python2_pickle if old else python3_pickle)("cifar10", 0))
    # half of the positions are counted from the end: what lies between is pixels
    start = position if position <= 200 else len(content) - (position - 200)
    content[start : start + len(junk)] = junk
    if not (tmp_path / "data_batch_1").exists():
        write("cifar10", tmp_path, python3_pickle)
    (tmp_path / "test_batch").write_bytes(bytes(content[:start] if cut else content))
    try:
        read("cifar10", tmp_path)
    except DataError as error:
        assert "test_batch" in str(error)


REAL = Path(os.environ.get("GCPSL_DATA", "/nonexistent")) / "cifar-10-batches-py"


@pytest.mark.skipif(not REAL.is_dir(), reason="GCPSL_DATA has no cifar-10-batches-py")
def test_the_real_cifar10_is_read() -> None:
    dataset = read("cifar10", REAL)
    assert np.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    means = dataset.train.images.mean(axis=(0, 2, 3)) / 255
    assert np.allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)
