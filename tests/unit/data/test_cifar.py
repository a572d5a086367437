"""CIFAR-10 and CIFAR-100 in both official layouts; a pickle that wants more than arrays is refused."""

from __future__ import annotations

import os
import pickle
import shlex
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gcpsl.config import DataConfig
from gcpsl.data import Dataset, load
from gcpsl.data.cifar import CIFAR10, CIFAR100, PIXELS, load_cifar
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


SMALL = {layout.name: replace(layout, train_images=ROWS, test_images=ROWS) for layout in (CIFAR10, CIFAR100)}


def read(name: str, root: Path) -> Dataset:
    """The data set, whose files hold only ROWS images each."""
    return load_cifar(SMALL[name], root)


def read_official(name: str, root: Path) -> Dataset:
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
    write(name, tmp_path / "renamed", content, suffix)
    for root in (tmp_path, tmp_path / folder, tmp_path / "renamed"):
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


PIXEL_ROWS = np.zeros((ROWS, PIXELS), np.uint8)


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
        (pickled({b"data": PIXEL_ROWS, b"labels": [1, 10, 1]}), "label 10 in row 1 is out of range"),
        (pickled({b"data": PIXEL_ROWS, b"labels": [1]}), "3 images but 1 labels"),
        (pickled({b"data": PIXEL_ROWS[:2], b"labels": [1, 1]}), "it has 2 images, the official file 3;"),
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
        (b"", "it has 0 images, the official file 3;"),
        (binary("cifar10", 0)[:-3073], "it has 2 images, the official file 3;"),
        (binary("cifar10", 0) * 2, "it has 6 images, the official file 3;"),
        (b"\x0a" + binary("cifar10", 0)[1:], "label 10 in row 0 is out of range"),
    ],
)
def test_a_damaged_binary_file_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    folder = write("cifar10", tmp_path, binary, ".bin")
    (folder / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read("cifar10", folder)
    assert "test_batch.bin" in str(caught.value)


def test_a_missing_batch_is_named_with_what_to_do(tmp_path: Path) -> None:
    folder = write("cifar10", tmp_path, python3_pickle)
    (folder / "data_batch_4").unlink()
    with pytest.raises(
        DataError, match=r"can't read '.*data_batch_4': No such file .*; get it again \(`gcpsl data get cifar10"
    ):
        read("cifar10", folder)


@pytest.mark.parametrize("root", [".", "cifar-10-batches-py", "my own", "cifar-10-batches-bin"])
def test_what_the_advice_fetches_is_what_is_read_next(root: str, tmp_path: Path) -> None:
    """From the folder above, the official one, one of another name, and beside the binary layout."""
    binary_layout = root.endswith("bin")
    where = tmp_path / ("cifar-10-batches-py" if root == "." else root)
    write("cifar10", where, binary if binary_layout else python3_pickle, ".bin" if binary_layout else "")
    (where / ("data_batch_1.bin" if binary_layout else "data_batch_1")).write_bytes(b"junk")
    with pytest.raises(DataError) as caught:
        read("cifar10", tmp_path / root)
    words = shlex.split(str(caught.value).split("`")[1])
    assert words[:5] == ["gcpsl", "data", "get", "cifar10", "--root"]
    write("cifar10", Path(words[5]) / "cifar-10-batches-py", python3_pickle)
    assert len(read("cifar10", tmp_path / root).train) == 5 * ROWS


OFFICIAL = [
    ("cifar10", [10_000] * 6, 3073),
    ("cifar100", [50_000, 10_000], 3074),
]


def write_zeros(name: str, folder: Path, images: list[int], record: int) -> None:
    """A binary layout without ink, in files that take no space."""
    train, test = NAMES[name]
    for file, count in zip([*train, test], images, strict=True):
        with (folder / f"{file}.bin").open("wb") as out:
            out.truncate(count * record)


@pytest.mark.parametrize(("name", "images", "record"), OFFICIAL)
def test_binary_files_must_have_all_the_images_of_the_official_ones(
    name: str, images: list[int], record: int, tmp_path: Path
) -> None:
    write_zeros(name, tmp_path, images, record)
    assert (len(read_official(name, tmp_path).train), len(read_official(name, tmp_path).test)) == (50_000, 10_000)
    for part in range(len(images)):
        write_zeros(name, tmp_path, [*images[:part], 200, *images[part + 1 :]], record)
        with pytest.raises(DataError, match=rf"it has 200 images, the official file {images[part]};"):
            read_official(name, tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_python_files_must_have_all_the_images_of_the_official_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"it has 3 images, the official file"):
        read_official(name, write(name, tmp_path, python3_pickle))


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
    dataset = read_official("cifar10", REAL)
    assert np.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    means = dataset.train.images.mean(axis=(0, 2, 3)) / 255
    assert np.allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)
