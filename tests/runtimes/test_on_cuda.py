"""What the graphed runtime promises only where there is a GPU; `make gpu-check` runs it there with the contract."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import random_dataset
from runtimes.test_contract import Bench, Watcher, close, equal
from torch import Tensor, nn

from gcpsl.config import Config
from gcpsl.data import federate
from gcpsl.errors import RunError
from gcpsl.models import build
from gcpsl.runtimes.base import EpochProgress, Job
from gcpsl.runtimes.graphed import GraphedRuntime

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
MakeConfig = Callable[..., Config]


class Peeking(nn.Module):
    """Looks at its values on the host, which a CUDA graph can't."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > -math.inf else -x


def peeking(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.ReLU(), Peeking(), nn.Linear(16, classes))


@pytest.fixture
def little_memory() -> Iterator[None]:
    """The process may take a part of the GPU's memory only."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (2 << 30)) / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def test_a_model_that_cannot_be_captured_trains_eagerly_and_says_why_once(small: MakeConfig) -> None:
    bench = Bench.of(small("model.cut=3"), peeking)
    said: list[str] = []
    runtime = GraphedRuntime(Job(bench.config, bench.data, bench.model, said.append))
    bench.run(runtime, epochs=2)
    assert len(said) == 1
    assert "can't be captured" in said[0] and "eager" in said[0]
    assert close(runtime.model_state(), bench.run(bench.runtime("eager"), epochs=2).model_state())


def test_a_batch_that_does_not_fit_says_what_does(small: MakeConfig, little_memory: None) -> None:
    config = small("model.name=resnet18", "partition.clients=4", "partition.kind=iid", "schedule.batch_size=2048")
    data = federate(config, random_dataset(samples=6000, shape=(3, 32, 32)))
    bench = Bench(config, data, build(config.model, data.input_shape, data.classes, config.seed))
    runtime = GraphedRuntime(Job(config, data, bench.model))
    with pytest.raises(RunError, match=r"lower schedule\.batch_size to \d+ or fewer"):
        runtime.prepare(bench.schedule(1))


@pytest.mark.parametrize("name", ["graphed", "graphed, stacked"])
@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
def test_reduced_precision_trains_nearly_as_full_precision_does(name: str, precision: str, small: MakeConfig) -> None:
    bench = Bench.of(small("model.name=small_cnn"), runtime=name)
    losses = {}
    for kind in ("fp32", precision):
        runtime, progress = bench.runtime(name, precision=kind), EpochProgress.start(2)
        runtime.run_epoch(bench.schedule(1), bench.config.optimizer.lr, progress, Watcher())
        losses[kind] = sum(progress.loss_sums) / bench.data.fleet.samples
    assert losses[precision] == pytest.approx(losses["fp32"], rel=0.02)


@pytest.mark.parametrize("name", ["graphed", "graphed, stacked"])
def test_deterministic_runs_in_bf16_agree_bit_for_bit(name: str, small: MakeConfig) -> None:
    bench = Bench.of(small("model.name=small_cnn", "data.flip=true"), runtime=name)
    one, other = (bench.run(bench.runtime(name, precision="bf16"), epochs=2) for _ in range(2))
    assert equal(one.state(), other.state())


def test_capturing_says_how_long_it_took_and_what_a_workload_takes(small: MakeConfig) -> None:
    bench = Bench.of(small("model.name=small_cnn"))
    said: list[str] = []
    GraphedRuntime(Job(bench.config, bench.data, bench.model, said.append)).prepare(bench.schedule(1))
    assert "captured in" in said[0] and "GiB of GPU memory per workload" in said[0]
