"""What the tests share: small data sets, small runs, and real CIFAR-10 where it is at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton: kernels then run on the CPU

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.data import Dataset, Samples
from gcpsl.records import EpochRecord

RECORD = EpochRecord(
    epoch=1,
    lr=0.1,
    loss=0.5,
    validation_accuracy=90.0,
    validation_loss=0.4,
    test_accuracy=91.5,
    test_loss=0.4,
    rounds=(3, 4),
    schedule_rounds=4,
    participation_ran=0.5,
    inactivity_ran=0.5,
    inactivity_bound_clusters=(0.0, 0.0),
    participation_system=0.5,
    inactivity_system=0.5,
    inactivity_bound_system=0.0,
    model_update_participation=0.9,
    local_compute_inactivity=0.5,
    active_client_rounds=10,
    client_rounds=20,
    batch_deviation=0.3,
    speedup_ideal=1.75,
    efficiency_ideal=0.875,
    speedup_real=1.0,
    payload_simulator_bytes=100,
    payload_real_bytes=50,
    drift=(0.1,),
    busy_s=(0.5, 0.5),
    local_s=1.0,
    fusion_s=0.1,
    validation_s=0.1,
    test_s=0.1,
)


def random_dataset(
    samples: int = 240, classes: int = 4, shape: tuple[int, int, int] = (1, 8, 8), seed: int = 0
) -> Dataset:
    """Images whose mean brightness tells their class, with noise."""
    random = np.random.default_rng(seed)

    def draw(count: int) -> Samples:
        labels = random.permutation(np.arange(count) % classes)
        noise = random.integers(0, 100, (count, *shape))
        return Samples((noise + 30 * labels[:, None, None, None]).astype(np.uint8), labels.astype(np.int64))

    return Dataset("random", classes, draw(samples), draw(samples // 4))


@pytest.fixture(autouse=True)
def _same_random_tensors() -> None:
    torch.manual_seed(0)


@pytest.fixture
def dataset() -> Dataset:
    return random_dataset()


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Config]:
    """Makes the config of a run that takes well under a second, in a folder of the test's own."""

    def make(*overrides: str) -> Config:
        defaults = (
            "partition.clients=8",
            "schedule.workloads=2",
            "schedule.batch_size=16",
            "train.epochs=2",
            "model.name=mlp",
            "data.validation_fraction=0.1",
            f"run.root={tmp_path / 'runs'}",
        )
        return configs.load(None, [*defaults, *overrides])

    return make


@pytest.fixture(scope="session")
def cifar10_root() -> Path:
    """The folder of the real CIFAR-10, named by GCPSL_DATA."""
    root = os.environ.get("GCPSL_DATA")
    if not root or not (Path(root) / "cifar-10-batches-py").is_dir():
        pytest.skip("GCPSL_DATA names no folder with cifar-10-batches-py")
    return Path(root)
