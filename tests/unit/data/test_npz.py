"""The user's own arrays: every layout that is documented, and every mistake named by file and array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gcpsl.config import DataConfig
from gcpsl.data import Dataset, load
from gcpsl.errors import DataError


def write(path: Path, shape: tuple[int, ...] = (8, 8), **changes: Any) -> Path:
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "x_train": generator.integers(0, 256, (6, *shape), np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 2], np.int32),
        "x_test": generator.integers(0, 256, (3, *shape), np.uint8),
        "y_test": np.array([0, 1, 2]),
    }
    np.savez(path, **{name: value for name, value in (arrays | changes).items() if value is not None})
    return path


def read(root: Path) -> Dataset:
    return load(DataConfig(name="npz", root=root))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((8, 9), (1, 8, 9)), ((3, 8, 9), (3, 8, 9)), ((8, 9, 3), (3, 8, 9)), ((20,), (20, 1, 1))],
)
def test_every_documented_layout_is_read(shape: tuple[int, ...], expected: tuple[int, ...], tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "mine.npz", shape))
    assert dataset.train.images.shape == (6, *expected)
    assert dataset.classes == 3


def test_floats_are_kept(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((6, 8, 8), np.float32)
    dataset = read(write(tmp_path / "mine.npz", x_train=values, x_test=values[:3]))
    assert np.array_equal(dataset.train.images[:, 0], values)


def test_a_folder_with_one_file_will_do_but_not_with_two(tmp_path: Path) -> None:
    write(tmp_path / "one.npz")
    assert read(tmp_path).classes == 3
    write(tmp_path / "two.npz")
    with pytest.raises(DataError, match=r"needs one \.npz file, but '.*' holds 2; set data.root"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x_test": None}, "has no x_test; it has x_train, y_train, y_test"),
        ({"x_train": np.zeros((6, 8, 8))}, "x_train, y_train of '.*': images are float64"),
        ({"x_train": np.zeros((6, 8, 8, 8), np.uint8)}, "x_train of '.*': in an array of shape"),
        ({"y_train": np.zeros(5, np.int64)}, "x_train, y_train of '.*': there are 6 images but 5 labels"),
        ({"y_train": np.zeros(6)}, "y_train of '.*': labels are float64"),
        ({"y_train": np.eye(6, dtype=np.int64)}, "y_train of '.*': labels are int64 of shape"),
        (
            {"y_train": np.array([0, 1, 2, -1, 0, 0])},
            "y_train of '.*': label -1 in row 3 is negative; number the classes",
        ),
        (
            {"y_train": np.array([0, 1, 2, 10**6, 0, 0])},
            "label 1000000 in row 3 is too large; number the classes from 0",
        ),
        (
            {"x_train": np.zeros((1, 8, 8), np.uint8), "y_train": np.array([-1])},
            "label -1 in row 0 is negative; number",
        ),
        ({"y_test": np.array([0, -1, 0])}, "y_test of '.*': label -1 in row 1 is out of range; labels must be 0 to 2"),
        (
            {"x_train": np.zeros((0, 8, 8), np.uint8), "y_train": np.zeros(0, int)},
            "x_train, y_train of '.*': there are no training samples; at least one",
        ),
        (
            {"x_test": np.zeros((0, 8, 8), np.uint8), "y_test": np.zeros(0, int)},
            "x_test, y_test of '.*': there are no test samples; at least one",
        ),
        ({"y_train": np.zeros(0, int)}, "x_train, y_train of '.*': there are 6 images but 0 labels"),
        ({"y_test": np.array([0, 7, 0])}, "y_test of '.*': label 7 in row 1 is out of range; labels must be 0 to 2"),
        ({"y_test": np.array([None, 1, 2], object)}, "can't read '.*' as an .npz of plain arrays"),
    ],
)
def test_a_wrong_array_is_named_with_its_file(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says) as caught:
        read(write(tmp_path / "mine.npz", **changes))
    assert "mine.npz" in str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 500])
def test_a_truncated_file_is_named(keep: int, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"mine.npz' is not an .npz file .* or is truncated"):
        read(path)


def test_a_damaged_array_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz")
    content = path.read_bytes().replace(b"(6, 8, 8)", b"(6, 8, 9)")
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"can't read '.*mine.npz'"):
        read(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10_000), junk=st.binary(min_size=1, max_size=4))
def test_damage_anywhere_is_a_data_error_or_harmless(position: int, junk: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.npz", (2, 2))
    content = bytearray(path.read_bytes())
    start = position % len(content)
    content[start : start + len(junk)] = junk
    path.write_bytes(content)
    try:
        read(path)
    except DataError as error:
        assert "mine.npz" in str(error)


def test_a_single_array_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(DataError, match=r"one.npy' is not an .npz file"):
        read(path)
