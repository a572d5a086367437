"""Samples and data sets are checked once, and any PyTorch dataset becomes one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset

from gcpsl.data import Dataset, Samples, from_torch
from gcpsl.data.dataset import channels_first
from gcpsl.errors import DataError


def samples(count: int = 4, dtype: DTypeLike = np.uint8) -> Samples:
    images: NDArray[Any] = np.arange(count * 12).reshape(count, 3, 2, 2).astype(dtype)
    return Samples(images, np.arange(count, dtype=np.int64) % 3)


class Pairs:
    """A map-style dataset of whatever is in it."""

    def __init__(self, *pairs: Any) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        return self.pairs[index]


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (np.zeros((2, 1, 2, 2)), np.zeros(2, np.int64), "images are float64"),
        (np.zeros((2, 2, 2), np.uint8), np.zeros(2, np.int64), r"must be \[samples, channels, height, width\]"),
        (np.zeros((2, 1, 0, 2), np.uint8), np.zeros(2, np.int64), "must be"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.zeros(2), "one int64 per image"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.zeros((2, 10), np.int64), "one int64 per image"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.zeros(3, np.int64), "2 images but 3 labels"),
    ],
)
def test_wrong_arrays_are_refused(images: Any, labels: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Samples(images, labels)


def test_samples_are_taken_in_the_order_asked() -> None:
    taken = samples().take(np.array([2, 0]))
    assert len(taken) == 2
    assert np.array_equal(taken.images, samples().images[[2, 0]])
    assert taken.labels.tolist() == [2, 0]


def test_a_label_out_of_range_is_named_by_data_set_split_and_row() -> None:
    with pytest.raises(DataError, match=r"mine, test samples: label 2 in row 2 is out of range; labels must be 0 to 1"):
        Dataset("mine", 2, samples(2), samples(4))


def test_training_and_test_images_must_be_alike() -> None:
    with pytest.raises(DataError, match=r"mine: training images are uint8 .* but test images float32"):
        Dataset("mine", 3, samples(), samples(dtype=np.float32))


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(DataError, match=r"test samples: there are none"):
        Dataset("mine", 3, samples(), samples(0))


def test_a_data_set_has_a_class() -> None:
    with pytest.raises(DataError, match=r"mine: classes = 0; there must be at least 1"):
        Dataset("mine", 0, samples(), samples())


def test_a_pixel_that_is_not_a_number_is_refused() -> None:
    broken = samples(dtype=np.float32)
    broken.images[1, 2, 1, 0] = np.nan
    with pytest.raises(DataError, match=r"training samples: images hold NaN"):
        Dataset("mine", 3, broken, samples(dtype=np.float32))


@given(n=st.integers(1, 3), c=st.integers(1, 4), h=st.integers(5, 7), w=st.integers(5, 7), last=st.booleans())
def test_channels_come_first_wherever_they_were(n: int, c: int, h: int, w: int, last: bool) -> None:
    images = np.arange(n * c * h * w).reshape(n, c, h, w)
    assert np.array_equal(channels_first(images.transpose(0, 2, 3, 1) if last else images), images)


def test_grey_images_get_a_channel_and_features_become_channels() -> None:
    assert channels_first(np.zeros((5, 8, 9))).shape == (5, 1, 8, 9)
    assert channels_first(np.zeros((5, 30))).shape == (5, 30, 1, 1)


@pytest.mark.parametrize("shape", [(5,), (5, 8, 8, 8), (2, 2, 2, 2, 2)])
def test_a_shape_without_a_channel_axis_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"shape"):
        channels_first(np.zeros(shape))


def test_a_tensor_dataset_is_taken_as_it_is() -> None:
    images, labels = torch.rand(6, 5, 7, 7, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    dataset = from_torch(TensorDataset(images, labels), TensorDataset(images[:2], labels[:2]), name="mine")
    assert (dataset.name, dataset.classes) == ("mine", 3)
    assert dataset.train.images.dtype == np.float32
    assert np.array_equal(dataset.train.images, images.float().numpy())
    assert dataset.test.labels.tolist() == [0, 1]


def rgb(height: int, width: int) -> NDArray[np.uint8]:
    return np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(rgb(5, 6)), rgb(5, 6).transpose(2, 0, 1)),
        (Image.fromarray(rgb(5, 6)[:, :, 0]), rgb(5, 6)[None, :, :, 0]),
        (Image.fromarray(rgb(5, 6)).convert("RGBA"), rgb(5, 6).transpose(2, 0, 1)),
        (rgb(5, 6), rgb(5, 6).transpose(2, 0, 1)),
        (rgb(5, 6)[:, :, 0], rgb(5, 6)[None, :, :, 0]),
        (torch.from_numpy(rgb(5, 6)[:, :, 0].copy()), rgb(5, 6)[None, :, :, 0]),
    ],
)
def test_one_image_of_any_kind_is_read(image: Any, expected: NDArray[np.uint8]) -> None:
    dataset = from_torch(Pairs((image, 1)), Pairs((image, np.int32(0))), classes=4)
    assert dataset.classes == 4
    assert dataset.train.images.dtype == np.uint8
    assert np.array_equal(dataset.train.images[0], expected)


def test_images_of_unequal_size_are_refused_by_index() -> None:
    uneven = Pairs((rgb(5, 5), 0), (rgb(5, 6), 0))
    with pytest.raises(DataError, match=r"custom, test samples: image 1 is uint8"):
        from_torch(Pairs((rgb(5, 5), 0)), uneven)


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(DataError, match=r"training samples: the dataset is empty"):
        from_torch(Pairs(), Pairs())


class Unending(IterableDataset[Any]):
    """What PyTorch calls an iterable-style dataset."""

    def __iter__(self) -> Iterator[Any]:
        yield rgb(5, 5), 0


class Unreadable(Pairs):
    def __getitem__(self, index: int) -> Any:
        raise OSError("disk gone")


class Sized(Unending):
    """Has a length, and still no samples by index."""

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize("dataset", [Unending(), iter([(rgb(5, 5), 0)]), None])
def test_a_dataset_without_a_length_is_refused(dataset: Any) -> None:
    with pytest.raises(DataError, match=r"custom, training samples: a .* has no length .*; give a map-style dataset"):
        from_torch(dataset, Pairs((rgb(5, 5), 0)))


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (Unreadable(1), "reading sample 0 failed: OSError: disk gone"),
        (Sized(), "reading sample 0 failed: NotImplementedError"),
        ({"a": 1}, "reading sample 0 failed: KeyError"),
        (Pairs({"image": rgb(5, 5), "label": 1}), "sample 0 is a dict"),
        (Pairs(rgb(2, 5)), "sample 0 is a ndarray"),
        (Pairs((rgb(5, 5), 0), (rgb(5, 5), 0, "extra")), "sample 1 is a tuple of 3"),
        (Pairs((rgb(5, 5),)), "sample 0 is a tuple of 1"),
        (Pairs((rgb(5, 5), 0), (rgb(5, 5), np.eye(10)[3])), "the label of sample 1 is array"),
        (Pairs((rgb(5, 5), torch.eye(10)[3])), "the label of sample 0 is tensor"),
        (Pairs((rgb(5, 5), [0, 1])), r"the label of sample 0 is \[0, 1\]"),
        (Pairs((rgb(5, 5), "cat")), "the label of sample 0 is 'cat'"),
        (Pairs((rgb(5, 5), None)), "the label of sample 0 is None"),
        (Pairs((rgb(5, 5), 1.7)), "the label of sample 0 is 1.7"),
        (Pairs((rgb(5, 5), torch.tensor(float("nan")))), r"the label of sample 0 is tensor\(nan\)"),
        (Pairs((rgb(5, 5), float("inf"))), "the label of sample 0 is inf"),
        (Pairs((rgb(5, 5), -1)), "the label of sample 0 is -1"),
        (Pairs((rgb(5, 5), 10**30)), "the label of sample 0 is 10+"),
        (Pairs(("cat.png", 1)), "sample 0: its image is 'cat.png'"),
        (Pairs(({"pixels": 1}, 1)), "sample 0: its image is {'pixels': 1}"),
        (Pairs((7, 1)), "sample 0: its image is 7"),
        (Pairs(([[1, 2], [3]], 1)), "sample 0: its image can't be read: ValueError"),
        (Pairs((torch.rand(1, 2, 2, requires_grad=True), 1)), "sample 0: its image can't be read: RuntimeError"),
    ],
)
@pytest.mark.parametrize("classes", [None, 10])
def test_what_is_no_sample_is_refused_with_what_one_is(dataset: Any, says: str, classes: int | None) -> None:
    with pytest.raises(DataError, match=rf"^custom, training samples: {says}.*; a sample must be \(image, label\), "):
        from_torch(dataset, Pairs((rgb(5, 5), 0)), classes=classes)


@pytest.mark.parametrize("label", [2, 2.0, np.uint8(2), np.array([2]), torch.tensor(2), torch.tensor([2.0])])
def test_a_label_may_be_any_whole_number(label: Any) -> None:
    assert from_torch([(rgb(5, 5), label)], [(rgb(5, 5), 0)]).train.labels.tolist() == [2]


def test_no_classes_are_no_data() -> None:
    with pytest.raises(DataError, match=r"custom: classes = 0; there must be at least 1"):
        from_torch(Pairs((rgb(5, 5), 0)), Pairs((rgb(5, 5), 0)), classes=0)
