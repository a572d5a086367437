"""`data.name` finds a built-in loader or the user's function, and the folder that applies."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gcpsl.config import DataConfig
from gcpsl.data import load
from gcpsl.data.folders import data_root, get_command, locate
from gcpsl.errors import ConfigError, DataError


def config(name: str, root: Path | None = None) -> DataConfig:
    return DataConfig(name=name, root=root)


def test_digits_are_the_same_split_for_everybody_and_class_balanced() -> None:
    first, second = load(config("digits")), load(config("digits"))
    assert first.train.images.shape == (1438, 1, 8, 8)
    assert first.test.images.shape == (359, 1, 8, 8)
    assert first.train.images.dtype == np.uint8
    assert (first.train.images.min(), first.train.images.max()) == (0, 16)
    assert np.array_equal(first.test.images, second.test.images)
    whole = np.bincount(first.train.labels) + np.bincount(first.test.labels)
    assert np.abs(np.bincount(first.test.labels) - 0.2 * whole).max() <= 0.5


def test_digits_are_all_of_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    digits, official = load(config("digits")), load_digits()
    ours = np.concatenate([digits.train.images, digits.test.images]).reshape(-1, 64)
    labels = np.concatenate([digits.train.labels, digits.test.labels])
    table = np.column_stack([ours, labels])
    expected = np.column_stack([official.data.astype(np.int64), official.target])
    assert np.array_equal(table[np.lexsort(table.T)], expected[np.lexsort(expected.T)])


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'cifar10'"):
        load(config("cifar-10"))


def test_a_users_function_makes_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("my_data_source.py").write_text(
        "import numpy as np\nfrom gcpsl.data import Dataset, Samples\n"
        "part = Samples(np.zeros((3, 1, 2, 2), np.uint8), np.arange(3))\n"
        "def make():\n    return Dataset('m', 3, part, part)\n"
        "def wrong():\n    return [1, 2]\n"
        "def broken():\n    return {}['path']\n"
    )
    assert load(config("my_data_source:make")).classes == 3
    with pytest.raises(DataError, match=r"'my_data_source:wrong' returned a list; it must return a gcpsl.data.Dataset"):
        load(config("my_data_source:wrong"))
    with pytest.raises(DataError, match=r"'my_data_source:broken' failed: KeyError: 'path'; it is called without"):
        load(config("my_data_source:broken"))


def test_the_root_is_the_setting_then_the_environment_then_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCPSL_DATA", "/from/environment")
    assert data_root(Path("/from/setting")) == Path("/from/setting")
    assert data_root(None) == Path("/from/environment")
    monkeypatch.delenv("GCPSL_DATA")
    assert data_root(None) == Path.home() / ".cache" / "gcpsl" / "data"
    assert data_root(Path("~/mine")) == Path.home() / "mine"


def test_missing_data_names_the_folder_and_what_to_do(tmp_path: Path) -> None:
    for root, state in ((tmp_path, "holds none of these files"), (tmp_path / "absent", "does not exist")):
        with pytest.raises(DataError) as caught:
            locate("cifar10", root, ["test_batch"], get_command("cifar10", root, "cifar-10-batches-py"))
        for part in (str(root), state, f"`gcpsl data get cifar10 --root {root}`", "data.root"):
            assert part in str(caught.value)
        assert caught.value.exit_code == 3


def test_every_file_source_says_when_its_folder_is_missing(tmp_path: Path) -> None:
    for name in ("cifar10", "cifar100", "fashion-mnist", "npz"):
        with pytest.raises(DataError, match=r"does not exist"):
            load(config(name, tmp_path / "absent"))


def idx(values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


def write_fashion(folder: Path, compressed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", 6), ("t10k", 2)):
        images = np.arange(count * 12, dtype=np.uint8).reshape(count, 3, 4)
        for rest, values in (("images-idx3", images), ("labels-idx1", np.arange(count, dtype=np.uint8))):
            content = idx(values)
            path = folder / f"{prefix}-{rest}-ubyte"
            if compressed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
            else:
                path.write_bytes(content)


@pytest.mark.parametrize("folder", ["", "fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("compressed", [False, True])
def test_fashion_mnist_is_read_plain_or_gzip_in_its_own_folder_or_above(
    folder: str, compressed: bool, tmp_path: Path
) -> None:
    write_fashion(tmp_path / folder, compressed)
    dataset = load(config("fashion-mnist", tmp_path))
    assert dataset.train.images.shape == (6, 1, 3, 4)
    assert dataset.train.images.ravel().tolist() == list(range(72))
    assert dataset.test.labels.tolist() == [0, 1]
    assert dataset.train.images.flags.writeable


def test_the_fashion_mnist_that_was_fetched_is_read_before_another(tmp_path: Path) -> None:
    write_fashion(tmp_path, compressed=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"junk")
    write_fashion(tmp_path / "fashion-mnist", compressed=True)
    assert len(load(config("fashion-mnist", tmp_path)).train) == 6


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("train-images-idx3-ubyte", idx(np.zeros((6, 3, 4), np.uint8))[:-1], "71 bytes of values where its header"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03", "is not an IDX file of 3-dimensional bytes"),
        ("train-labels-idx1-ubyte", idx(np.zeros((6, 1), np.uint8)), "is not an IDX file of 1-dimensional bytes"),
        ("t10k-labels-idx1-ubyte", idx(np.array([1, 10], np.uint8)), "label 10 in row 1 is out of range"),
        ("t10k-labels-idx1-ubyte", idx(np.array([1], np.uint8)), "2 images but 1 labels"),
    ],
)
def test_a_damaged_idx_file_is_named(file: str, content: bytes, says: str, tmp_path: Path) -> None:
    write_fashion(tmp_path, compressed=False)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        load(config("fashion-mnist", tmp_path))
    assert file in str(caught.value)
    assert f"; get it again (`gcpsl data get fashion-mnist --root {tmp_path}`)" in str(caught.value)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b"no gzip" + b, lambda b: b[:14] + b"\xff" * 20 + b[34:]]
)
def test_a_damaged_gzip_file_is_named(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    write_fashion(tmp_path, compressed=True)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        DataError, match=r"t10k-images-idx3-ubyte.gz' is truncated or damaged.*; get it again \(`gcpsl data get"
    ):
        load(config("fashion-mnist", tmp_path))


def test_a_missing_idx_file_is_named(tmp_path: Path) -> None:
    write_fashion(tmp_path, compressed=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        DataError, match=r"can't read '.*t10k-labels-idx1-ubyte.gz': No such file.*; get it again \(`gcpsl data get"
    ):
        load(config("fashion-mnist", tmp_path))


DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_debians_fashion_mnist_is_read() -> None:
    dataset = load(config("fashion-mnist", DEBIAN))
    assert dataset.train.images.shape == (60_000, 1, 28, 28)
    assert np.bincount(dataset.train.labels).tolist() == [6000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
