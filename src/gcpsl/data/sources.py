"""Which data set a config names. Each loader is one file of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gcpsl import plugins
from gcpsl.config import DataConfig
from gcpsl.data.cifar import cifar10, cifar100
from gcpsl.data.dataset import Dataset
from gcpsl.data.digits import digits
from gcpsl.data.fashion_mnist import fashion_mnist
from gcpsl.data.folders import data_root
from gcpsl.data.npz import npz
from gcpsl.errors import ConfigError, DataError, GcpslError, nearest

LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "digits": lambda _: digits(),
    "cifar10": cifar10,
    "cifar100": cifar100,
    "fashion-mnist": fashion_mnist,
    "npz": npz,
}


def load(config: DataConfig) -> Dataset:
    """The data set of `data.name`, read from `data.root` or where data is kept by default."""
    if config.name in LOADERS:
        return LOADERS[config.name](data_root(config.root))
    if ":" not in config.name:
        raise ConfigError(
            f"data.name = '{config.name}' is not a data set: {nearest(config.name, LOADERS)} "
            "(or package.module:function for your own)"
        )
    make = plugins.resolve(config.name, "data.name")
    try:
        dataset = make()
    except GcpslError:
        raise
    except Exception as error:
        raise DataError(
            f"data.name = '{config.name}' failed: {type(error).__name__}: {error}; "
            "it is called without arguments and must return a gcpsl.data.Dataset"
        ) from error
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"data.name = '{config.name}' returned a {type(dataset).__name__}; "
            "it must return a gcpsl.data.Dataset (gcpsl.data.from_torch makes one)"
        )
    return dataset
