"""What every runtime promises, checked against a slow twin that trains whole networks."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from conftest import random_dataset
from runtimes.twin import Twin
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gcpsl.config import Config, override
from gcpsl.data import FederatedData, federate
from gcpsl.fleet import IntArray
from gcpsl.models import SplitModel, build
from gcpsl.models.assembly import Factory
from gcpsl.models.zoo.resnet import BasicBlock
from gcpsl.runtimes.base import EpochProgress, Interrupted, Job, Runtime
from gcpsl.runtimes.eager import EagerRuntime
from gcpsl.runtimes.graphed import GraphedRuntime
from gcpsl.sampling import Holdings
from gcpsl.schedule import EpochSchedule, epoch_schedule

MakeConfig = Callable[..., Config]
RUNTIMES: dict[str, Callable[[Job], Runtime]] = {
    "eager": EagerRuntime,
    "graphed": GraphedRuntime,
    "graphed, stacked": GraphedRuntime,
}
REGIMES = {
    "gcpsl": [],
    "gcpsl fused every 3 rounds": ["schedule.synchronise=3"],
    "gcpsl never fused": ["schedule.synchronise=never"],
    "sequential": ["schedule.execution=sequential"],
    "repartitioned": ["schedule.assignment=redrawn", "clustering.rule=random"],
    "single worker": ["schedule.draw=all", "schedule.workloads=1"],
    "data-parallel": ["schedule.draw=all", "schedule.synchronise=step"],
    "sharded synchronous": ["schedule.draw=all", "schedule.synchronise=step", "schedule.batch_size=5"],
    "clusters in lockstep": ["schedule.synchronise=step"],
    "shares fused every epoch": ["schedule.draw=all"],
}


def with_dropout(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A network that draws random numbers on both sides of its cut, '3'."""
    drop = [nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*drop, nn.Linear(16, classes))


def stackable(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A network whose replicas the graphed runtime computes together, with BatchNorm after its cut, 'block'."""
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(shape[0], 16, 3, padding=1, bias=False),
        "norm": nn.BatchNorm2d(16),
        "relu": nn.ReLU(),
        "block": BasicBlock(16, 32, 2),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "fc": nn.Linear(32, classes),
    }
    return nn.Sequential(OrderedDict(layers))


class Watcher:
    """Counts rounds, and stops the epoch after so many."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.rounds, self._stop_after = 0, stop_after

    def rounds_done(self, loss: float, rounds: int) -> None:
        assert np.isfinite(loss)
        self.rounds += rounds
        if self._stop_after is not None and self.rounds >= self._stop_after:
            raise Interrupted

    def stop_asked(self) -> bool:
        return False

    def at_barrier(self, place: str) -> None:
        assert "barrier" in place or "turn" in place


@dataclass
class Bench:
    """One config's data and model, and the schedules of its epochs."""

    config: Config
    data: FederatedData
    model: SplitModel

    @classmethod
    def of(cls, config: Config, factory: Factory | None = None, runtime: str = "eager") -> Bench:
        data = federate(config, random_dataset())
        if runtime == "graphed, stacked":
            config, factory = override(config, "model.cut=block"), stackable
        return cls(config, data, build(config.model, data.input_shape, data.classes, config.seed, factory))

    def runtime(self, name: str = "eager", **settings: str) -> Runtime:
        """In the arithmetic that the others can be compared with."""
        changed = self.config.runtime.model_copy(update={"precision": "fp32", "deterministic": True} | settings)
        return RUNTIMES[name](Job(self.config.model_copy(update={"runtime": changed}), self.data, self.model))

    def schedule(self, epoch: int) -> EpochSchedule:
        clients, workloads = self.data.fleet.clients, self.config.schedule.workloads
        redrawn = self.config.schedule.assignment == "redrawn"
        assignment: IntArray = np.random.default_rng(epoch if redrawn else 0).permutation(
            np.arange(clients) % workloads
        )
        holdings = Holdings.of(self.data.owners, clients)
        return epoch_schedule(self.config.schedule, holdings, assignment, seed=0, epoch=epoch)

    def run(self, runtime: Runtime, epochs: int, first: int = 1) -> Runtime:
        for epoch in range(first, first + epochs):
            schedule = self.schedule(epoch)
            progress = EpochProgress.start(self.config.schedule.workloads)
            runtime.run_epoch(schedule, self.config.optimizer.lr, progress, Watcher())
        return runtime


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def close(one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float = 1e-3) -> bool:
    """Equal up to float32 rounding, which training amplifies: tensor by tensor, in the relative norm."""

    def apart(a: Tensor, b: Tensor) -> float:
        a, b = a.double().cpu(), b.double().cpu()
        return float((a - b).norm() / b.norm().clamp(min=1e-6))

    return one.keys() == other.keys() and all(apart(one[name], other[name]) < tolerance for name in one)


def by_twin(bench: Bench, epochs: int) -> dict[str, Tensor]:
    """The fused model that the twin ends with."""
    twin = Twin(bench.config, bench.data, bench.model)
    for epoch in range(1, epochs + 1):
        twin.run_epoch(bench.schedule(epoch))
    names = list(bench.model.client.state_dict()) + list(bench.model.server.state_dict())
    return dict(zip(names, twin.mean(bench.schedule(epochs).weights).values(), strict=True))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("regime", REGIMES)
def test_every_regime_trains_as_the_twin_does(runtime: str, regime: str, small: MakeConfig) -> None:
    settings = ("model.name=small_cnn", "schedule.workloads=3", "optimizer.lr=0.01", *REGIMES[regime])
    bench = Bench.of(small(*settings), runtime=runtime)
    trained = bench.run(bench.runtime(runtime), epochs=2)
    assert close(trained.model_state(), by_twin(bench, epochs=2))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("draw", ["cluster", "all"])
@pytest.mark.parametrize("augmentation", [["flip=true"], ["crop_padding=2"], ["flip=true", "crop_padding=2"]])
def test_augmented_images_are_what_is_trained_on(
    runtime: str, draw: str, augmentation: list[str], small: MakeConfig
) -> None:
    settings = ("model.name=small_cnn", "optimizer.lr=0.01", f"schedule.draw={draw}")
    augmented = Bench.of(small(*settings, *(f"data.{setting}" for setting in augmentation)), runtime=runtime)
    plain = Bench.of(small(*settings), runtime=runtime)
    trained = augmented.run(augmented.runtime(runtime), epochs=2).model_state()
    assert close(trained, by_twin(augmented, epochs=2))
    assert not close(trained, plain.run(plain.runtime(runtime), epochs=2).model_state(), tolerance=0.01)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_shared_clients_train_as_real_replicas_do(regime: str, optimizer: str, small: MakeConfig) -> None:
    # AdamW makes much of a rounding at higher rates; the decay is one that nobody can miss
    kind = [f"optimizer.kind={optimizer}", "optimizer.lr=0.001", "optimizer.weight_decay=1", "optimizer.momentum=0.9"]
    bench = Bench.of(small("model.name=small_cnn", "data.flip=true", "data.crop_padding=1", *kind, *REGIMES[regime]))
    shared = bench.run(bench.runtime(client_side="shared"), epochs=2)
    replicas = bench.run(bench.runtime(client_side="replicas"), epochs=2)
    assert close(shared.model_state(), replicas.model_state(), tolerance=1e-5)


@pytest.mark.parametrize(("runtime", "client_side"), [*((name, "shared") for name in RUNTIMES), ("eager", "replicas")])
@pytest.mark.parametrize("regime", REGIMES)
def test_an_epoch_left_in_the_middle_continues_bit_for_bit_in_another_process(
    runtime: str, client_side: str, regime: str, small: MakeConfig
) -> None:
    bench = Bench.of(small("schedule.batch_size=12", *REGIMES[regime]), runtime=runtime)
    whole = bench.run(bench.runtime(runtime, client_side=client_side), epochs=2)
    first = bench.run(bench.runtime(runtime, client_side=client_side), epochs=1)
    progress = EpochProgress.start(bench.config.schedule.workloads)
    with pytest.raises(Interrupted):
        first.run_epoch(bench.schedule(2), bench.config.optimizer.lr, progress, Watcher(stop_after=4))
    state = {name: tensor.clone() for name, tensor in first.state().items()}
    second = bench.runtime(runtime, client_side=client_side)
    second.restore(state)
    second.run_epoch(bench.schedule(2), bench.config.optimizer.lr, progress, Watcher())
    assert equal(second.model_state(), whole.model_state())
    assert equal(second.state(), whole.state())


@pytest.mark.parametrize("runtime", ["eager", "graphed"])
@pytest.mark.parametrize("regime", ["gcpsl", "data-parallel"])
def test_dropout_draws_the_same_after_an_interruption_and_leaves_the_callers_random_state(
    runtime: str, regime: str, small: MakeConfig
) -> None:
    bench = Bench.of(small("schedule.batch_size=12", "model.cut=3", *REGIMES[regime]), with_dropout)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    whole = bench.run(bench.runtime(runtime), epochs=1)
    assert torch.equal(torch.rand(3), expected)
    first, progress = bench.runtime(runtime), EpochProgress.start(2)
    with pytest.raises(Interrupted):
        first.run_epoch(bench.schedule(1), bench.config.optimizer.lr, progress, Watcher(stop_after=4))
    torch.manual_seed(7)
    first.run_epoch(bench.schedule(1), bench.config.optimizer.lr, progress, Watcher())
    assert equal(first.state(), whole.state())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_two_runs_of_the_same_seed_agree_bit_for_bit(runtime: str, small: MakeConfig) -> None:
    bench = Bench.of(small("model.name=small_cnn", "data.flip=true"), runtime=runtime)
    one, other = (bench.run(bench.runtime(runtime), epochs=2) for _ in range(2))
    assert equal(one.state(), other.state())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_replicas_are_equal_after_fusion_and_their_optimizers_stay_local(runtime: str, small: MakeConfig) -> None:
    bench = Bench.of(small(), runtime=runtime)
    state = bench.run(bench.runtime(runtime), epochs=1).state()
    for side in ("client", "server"):
        assert torch.equal(state[f"0.{side}.parameters"], state[f"1.{side}.parameters"])
        assert not torch.equal(
            state[f"0.{side}.optimizer.momentum_buffer"], state[f"1.{side}.optimizer.momentum_buffer"]
        )


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_batch_norm_state_and_counter_are_fused(runtime: str, small: MakeConfig) -> None:
    bench = Bench.of(small("model.name=small_cnn"), runtime=runtime)
    trained = bench.run(bench.runtime(runtime), epochs=1)
    state = trained.state()
    assert torch.equal(state["0.server.norm_state"], state["1.server.norm_state"])
    rounds = bench.schedule(1).rounds
    weights = bench.schedule(1).weights
    mean = round(sum(w * r for w, r in zip(weights, rounds, strict=True)))
    assert set(state["0.server.counters"].tolist()) == {mean}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("synchronise", ["epoch", "never"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluation_scores_the_fused_model_and_leaves_training_as_it_was(
    runtime: str, synchronise: str, split: str, small: MakeConfig
) -> None:
    bench = Bench.of(
        small("model.name=small_cnn", f"schedule.synchronise={synchronise}", "train.eval_batch_size=7"), runtime=runtime
    )
    trained = bench.run(bench.runtime(runtime), epochs=1)
    before = {name: tensor.clone() for name, tensor in trained.state().items()}
    score = trained.evaluate(split)
    assert equal(before, trained.state())

    network = bench.model
    network.load_state_dict(trained.model_state())
    data, samples = bench.data, {"validation": bench.data.validation, "test": bench.data.test}[split]
    images = (samples.images / 255 - data.mean[:, None, None]) / data.std[:, None, None]
    with torch.no_grad():
        logits = network.whole().eval()(torch.from_numpy(images).float())
    labels = torch.from_numpy(samples.labels)
    assert score.accuracy == pytest.approx(100 * float((logits.argmax(1) == labels).float().mean()))
    assert score.loss == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-4)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_progress_counts_rounds_losses_and_drift(runtime: str, small: MakeConfig) -> None:
    bench = Bench.of(small("schedule.synchronise=3"), runtime=runtime)
    schedule, progress, watcher = bench.schedule(1), EpochProgress.start(2), Watcher()
    made = bench.runtime(runtime)
    made.run_epoch(schedule, bench.config.optimizer.lr, progress, watcher)
    assert tuple(progress.rounds_done) == schedule.rounds
    assert watcher.rounds == sum(schedule.rounds)
    assert progress.phases_done == len(schedule.phases) == len(progress.drifts)
    assert 0 < sum(progress.loss_sums) / bench.data.fleet.samples < 10
    assert progress.local_s >= sum(progress.busy_s) - 1e-6
    assert made.workers == 1
    assert made.memory_bytes_max() > 1e7


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_drift_is_the_twins_distance_from_the_mean_weighted_by_samples(runtime: str, small: MakeConfig) -> None:
    bench = Bench.of(
        small("model.name=small_cnn", "schedule.workloads=3", "schedule.synchronise=3", "optimizer.lr=0.01"),
        runtime=runtime,
    )
    schedule, progress = bench.schedule(1), EpochProgress.start(3)
    bench.runtime(runtime).run_epoch(schedule, bench.config.optimizer.lr, progress, Watcher())
    twin = Twin(bench.config, bench.data, bench.model)
    twin.run_epoch(schedule)
    assert max(schedule.weights) > 1.2 * min(schedule.weights)
    assert progress.drifts == pytest.approx(twin.drifts, rel=1e-3)
    assert min(twin.drifts) > 0


def test_an_attempt_to_capture_leaves_nothing_behind_for_eager_rounds(small: MakeConfig) -> None:
    bench = Bench.of(small())
    runtime = bench.runtime("graphed")
    assert isinstance(runtime, GraphedRuntime)
    runtime.prepare(bench.schedule(1))
    runtime._fall_back("it looks at its values")
    assert close(bench.run(runtime, epochs=2).model_state(), bench.run(bench.runtime("eager"), epochs=2).model_state())
