"""PyTorch's map-style datasets read into memory, each sample checked. Knows neither torch nor files."""

from __future__ import annotations

import reprlib
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gcpsl.data.dataset import CLASSES_MAX, Dataset, Samples, channels_first, class_count, naming
from gcpsl.errors import DataError

SAMPLE = (
    "a sample must be (image, label), the image a PIL image, an array or a tensor, "
    f"the label its class as a whole number from 0 (to {CLASSES_MAX - 1} at most)"
)


class MapDataset(Protocol):
    """What PyTorch calls a map-style dataset: a length, and (image, label) by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def from_torch(train: MapDataset, test: MapDataset, classes: int | None = None, name: str = "custom") -> Dataset:
    """Any PyTorch map-style datasets of (image, label), read once into memory.

    An image may be a PIL image (kept as grey or RGB), an array ([h, w] or with channels first or last), or a tensor
    ([h, w] or [c, h, w]); uint8 stays uint8 and floats become float32. `classes` is one more than the largest
    training label unless given. Random transforms would be frozen at their first draw: leave them out.
    """
    splits = []
    for split, dataset in (("training", train), ("test", test)):
        with naming(f"{name}, {split} samples"):
            splits.append(_gather(dataset))
    return Dataset(name, class_count(splits[0].labels) if classes is None else classes, *splits)


def _gather(dataset: MapDataset) -> Samples:
    count = _length(dataset)
    labels = np.empty(count, np.int64)
    images: NDArray[Any] | None = None
    for index in range(count):
        item, labels[index] = _sample(dataset, index)
        with naming(f"sample {index}"):
            image = _pixels(item)
        if images is None:
            images = np.empty((count, *image.shape), image.dtype)
        if image.shape != images.shape[1:] or image.dtype != images.dtype:
            raise DataError(
                f"image {index} is {image.dtype} {list(image.shape)} but the first {images.dtype} "
                f"{list(images.shape[1:])}; resize them alike"
            )
        images[index] = image
    assert images is not None
    return Samples(images, labels)


def _length(dataset: MapDataset) -> int:
    try:
        count = len(dataset)
    except Exception as error:
        raise DataError(
            f"a {type(dataset).__name__} has no length ({error}); give a map-style dataset, with __len__ and "
            "__getitem__, or a list of the samples"
        ) from error
    if not count:
        raise DataError("the dataset is empty")
    return count


def _sample(dataset: MapDataset, index: int) -> tuple[Any, int]:
    """A sample's image, whatever it is, and its label."""
    try:
        sample = dataset[index]
    except Exception as error:
        raise DataError(f"reading sample {index} failed: {type(error).__name__}: {error}; {SAMPLE}") from error
    if not isinstance(sample, tuple | list):
        raise DataError(f"sample {index} is a {type(sample).__name__}; {SAMPLE}")
    if len(sample) != 2:
        raise DataError(f"sample {index} is a {type(sample).__name__} of {len(sample)}; {SAMPLE}")
    item, given = sample
    label = _label(given)
    if label is None:
        raise DataError(f"the label of sample {index} is {reprlib.repr(given)}; {SAMPLE}")
    return item, label


def _label(given: Any) -> int | None:
    """The class that a number, or an array or tensor of one, says; None unless it is one."""
    try:
        value = given.item() if hasattr(given, "item") else given
    except (ValueError, RuntimeError):
        return None  # it has more than one element
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and 0 <= value < CLASSES_MAX else None


def _pixels(image: Any) -> NDArray[Any]:
    """One image as [c, h, w], uint8 or float32."""
    is_pil = hasattr(image, "convert")
    try:
        array: NDArray[Any] = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB") if is_pil else image)
    except Exception as error:
        raise DataError(f"its image can't be read: {type(error).__name__}: {error}; {SAMPLE}") from error
    if array.dtype.kind not in "buif" or not array.ndim:
        raise DataError(f"its image is {reprlib.repr(image)}; {SAMPLE}")
    if array.dtype.kind == "f":
        array = array.astype(np.float32)
    is_tensor = not is_pil and not isinstance(image, np.ndarray)
    if is_tensor and array.ndim == 3:
        return array
    laid_out: NDArray[Any] = channels_first(array[None])[0]
    return laid_out
