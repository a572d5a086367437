"""Training a run from end to end: what it learns, records and leaves behind."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import random_dataset
from runtimes.test_contract import Bench, Watcher
from safetensors.torch import load_file
from torch import nn

import gcpsl
from gcpsl.config import Config, OptimizerConfig
from gcpsl.data import Dataset
from gcpsl.display import Silent
from gcpsl.errors import ConfigError, RunError
from gcpsl.fleet import Fleet, IntArray
from gcpsl.metrics import PayloadSizes
from gcpsl.models import build
from gcpsl.models.measure import sizes_of
from gcpsl.records import EpochRecord, Summary
from gcpsl.runs import RunFolder
from gcpsl.runtimes.base import EpochProgress
from gcpsl.training import learning_rate

MakeConfig = Callable[..., Config]


def test_the_built_in_default_learns_digits(tmp_path: Path) -> None:
    result = gcpsl.train(None, f"run.root={tmp_path}", "train.epochs=6", "runtime.threads=1")
    assert result.summary is not None
    assert result.summary.test_accuracy > 95
    assert result.summary.clients == 64
    assert result.summary.workloads == 4


def test_a_run_leaves_a_folder_that_explains_it(small: MakeConfig, dataset: Dataset) -> None:
    result = gcpsl.train(small(), dataset=dataset)
    assert result.finished
    folder = RunFolder.open(result.path)
    assert [EpochRecord.from_json(value) for value in folder.epochs()] == list(result.epochs)
    summary = folder.read_json("summary.json")
    assert summary is not None
    assert Summary.from_json(summary) == result.summary
    environment = folder.read_json("environment.json")
    assert environment is not None
    assert environment["packages"]["torch"] == torch.__version__
    assignment = folder.read_json("assignment.json")
    assert assignment is not None
    assert set(assignment["assignment"].values()) == {0, 1}
    assert len(assignment["assignment"]) == 8
    assert not list((result.path / "checkpoints").iterdir())


def test_the_saved_model_scores_what_the_summary_says(small: MakeConfig, dataset: Dataset) -> None:
    config = small()
    result = gcpsl.train(config, dataset=dataset)
    assert result.summary is not None
    model = build(config.model, (1, 8, 8), 4, seed=99)
    model.load_state_dict(load_file(result.path / "model.safetensors"))
    from gcpsl.data import federate

    data = federate(config, dataset)
    images = (data.test.images / 255 - data.mean[:, None, None]) / data.std[:, None, None]
    with torch.no_grad():
        predicted = model.whole().eval()(torch.from_numpy(images).float()).argmax(1)
    accuracy = 100 * float((predicted == torch.from_numpy(data.test.labels)).float().mean())
    assert accuracy == pytest.approx(result.summary.test_accuracy)


def test_records_count_rounds_and_participation_of_the_plans_that_ran(small: MakeConfig, dataset: Dataset) -> None:
    result = gcpsl.train(small(), dataset=dataset)
    first = result.epochs[0]
    assert first.schedule_rounds == max(first.rounds)
    assert first.speedup_ideal == pytest.approx(sum(first.rounds) / max(first.rounds))
    assert 0 < first.participation_system <= first.participation_ran <= 1
    assert first.inactivity_ran >= min(first.inactivity_bound_clusters)
    assert first.inactivity_system >= first.inactivity_bound_system
    assert first.drift[0] > 0
    assert 0.9 < first.speedup_real <= 1.01


def test_sequential_execution_counts_every_workloads_rounds(small: MakeConfig, dataset: Dataset) -> None:
    together = gcpsl.train(small(), dataset=dataset)
    apart = gcpsl.train(small("schedule.execution=sequential"), dataset=dataset)
    assert apart.epochs[0].schedule_rounds == sum(apart.epochs[0].rounds)
    assert [r.test_accuracy for r in apart.epochs] == [r.test_accuracy for r in together.epochs]
    for name in ("participation_ran", "participation_system", "model_update_participation", "batch_deviation"):
        assert [getattr(r, name) for r in apart.epochs] == [getattr(r, name) for r in together.epochs]


def test_a_global_batch_counts_a_client_once_per_round(small: MakeConfig, dataset: Dataset) -> None:
    result = gcpsl.train(small("schedule.draw=all", "schedule.synchronise=step"), dataset=dataset)
    first = result.epochs[0]
    assert first.participation_system == first.participation_ran
    assert first.active_client_rounds <= 8 * max(first.rounds)
    assert first.inactivity_bound_clusters == (0.0,)


def test_targets_are_read_from_validation_or_test_accuracy(small: MakeConfig, dataset: Dataset) -> None:
    result = gcpsl.train(small("run.targets=[1, 100]", "data.validation_fraction=0"), dataset=dataset)
    assert result.summary is not None
    assert result.summary.target_split == "test"
    reached, missed = result.summary.targets
    assert (reached.epoch, reached.rounds) == (1, result.epochs[0].schedule_rounds)
    assert reached.time_s == pytest.approx(result.epochs[0].epoch_s)
    assert reached.worker_minutes == pytest.approx(result.epochs[0].epoch_s / 60)
    assert missed.epoch is None
    assert result.summary.best_epoch is None
    assert not (result.path / "best.safetensors").exists()


def test_the_best_checkpoint_is_the_first_with_the_highest_validation_accuracy(
    small: MakeConfig, dataset: Dataset
) -> None:
    result = gcpsl.train(small("train.epochs=5"), dataset=dataset)
    assert result.summary is not None
    best = max(result.epochs, key=lambda r: (r.validation_accuracy or 0, -r.epoch))
    assert result.summary.best_epoch == best.epoch
    assert result.summary.best_test_accuracy == best.test_accuracy
    raw = (result.path / "best.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert json.loads(header["__metadata__"]["about"])["epoch"] == str(best.epoch)


def test_a_clustering_rule_of_ones_own_is_one_function(small: MakeConfig, dataset: Dataset) -> None:
    def by_parity(fleet: Fleet, clusters: int, _: np.random.Generator) -> IntArray:
        return np.arange(fleet.clients) % clusters

    result = gcpsl.train(small(), dataset=dataset, rule=by_parity)
    assignment = RunFolder.open(result.path).read_json("assignment.json")
    assert assignment is not None
    assert list(assignment["assignment"].values()) == [0, 1] * 4


def test_a_model_of_ones_own_is_one_function(small: MakeConfig, dataset: Dataset) -> None:
    def make(shape: tuple[int, int, int], classes: int) -> nn.Module:
        layers = [nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.ReLU(), nn.Linear(16, classes)]
        return nn.Sequential(*layers)

    result = gcpsl.train(small("model.cut=3"), dataset=dataset, model=make)
    assert set(load_file(result.path / "model.safetensors")) == {"1.weight", "1.bias", "3.weight", "3.bias"}
    with pytest.raises(ConfigError, match=r"model\.cut must be set"):
        gcpsl.train(small(), dataset=dataset, model=make)


def test_clients_redrawn_every_epoch_change_clusters(small: MakeConfig, dataset: Dataset) -> None:
    seen = []

    def note(fleet: Fleet, clusters: int, generator: np.random.Generator) -> IntArray:
        seen.append(tuple(generator.permutation(np.arange(fleet.clients) % clusters)))
        return np.array(seen[-1])

    redrawn = ["schedule.assignment=redrawn", "clustering.rule=random", "train.epochs=4"]
    result = gcpsl.train(small(*redrawn), dataset=dataset, rule=note)
    assert len(set(seen)) == 4
    assignment = RunFolder.open(result.path).read_json("assignment.json")
    assert assignment is not None
    assert tuple(assignment["assignment"].values()) == seen[0]


def test_never_fused_replicas_are_still_evaluated_as_their_average(small: MakeConfig, dataset: Dataset) -> None:
    fused = gcpsl.train(small(), dataset=dataset)
    never = gcpsl.train(small("schedule.synchronise=never"), dataset=dataset)
    assert never.epochs[0].drift == ()
    assert never.epochs[0].test_loss == pytest.approx(fused.epochs[0].test_loss)
    assert never.epochs[1].test_loss != pytest.approx(fused.epochs[1].test_loss)


def test_payload_follows_from_the_split_model(small: MakeConfig, dataset: Dataset) -> None:
    config = small()
    result = gcpsl.train(config, dataset=dataset)
    sizes = PayloadSizes.of(sizes_of(build(config.model, (1, 8, 8), 4, 0)))
    record = result.epochs[0]
    fusion = 2 * 2 * (sizes.model_bytes + sizes.norm_state_bytes) + 8 * sizes.client_bytes
    real = 2 * sizes.activation_bytes * 216
    real += sizes.client_bytes * (record.active_client_rounds + record.client_rounds) + fusion
    assert record.payload_real_bytes == real


def test_replicas_that_all_draw_from_everyone_pay_for_a_segment_each(small: MakeConfig, dataset: Dataset) -> None:
    """Unless they step together: then all clients share one segment, and there is nothing to fuse."""
    config = small("schedule.draw=all")
    sizes = PayloadSizes.of(sizes_of(build(config.model, (1, 8, 8), 4, 0)))
    apart = gcpsl.train(config, dataset=dataset).epochs[0]
    together = gcpsl.train(small("schedule.draw=all", "schedule.synchronise=step"), dataset=dataset).epochs[0]
    fusion = 2 * 2 * (sizes.model_bytes + sizes.norm_state_bytes) + 8 * sizes.client_bytes
    updates = sum(apart.rounds) * 8
    activations = 4 * sizes.activation_bytes * 216
    assert apart.payload_simulator_bytes == activations + 4 * sizes.client_bytes * updates + fusion
    assert together.payload_simulator_bytes == activations + 4 * sizes.client_bytes * updates / 2


def test_a_finished_run_is_not_resumed(small: MakeConfig, dataset: Dataset) -> None:
    result = gcpsl.train(small(), dataset=dataset)
    with pytest.raises(RunError, match="has finished already"):
        gcpsl.resume(result.path, dataset=dataset)


def test_a_run_without_a_checkpoint_starts_again_from_the_beginning(small: MakeConfig, dataset: Dataset) -> None:
    whole = gcpsl.train(small("run.name=whole"), dataset=dataset)
    folder = RunFolder.create(small("run.name=killed"), {})
    folder.log_epoch({"epoch": 1})
    resumed = gcpsl.resume(folder.path, dataset=dataset)
    one, other = load_file(whole.path / "model.safetensors"), load_file(resumed.path / "model.safetensors")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert [EpochRecord.from_json(value) for value in folder.epochs()] == list(resumed.epochs)


def test_learning_rates_warm_up_and_decay() -> None:
    constant = OptimizerConfig(lr=0.1)
    assert {learning_rate(constant, epoch, 10) for epoch in range(1, 11)} == {0.1}
    cosine = OptimizerConfig(lr=0.1, lr_schedule="cosine", warmup_epochs=2)
    rates = [learning_rate(cosine, epoch, 10) for epoch in range(1, 11)]
    assert rates[:3] == pytest.approx([0.1 / 3, 0.2 / 3, 0.1])
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert 0 < rates[-1] < 0.01


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_every_epoch_trains_at_the_rate_that_its_record_names(
    schedule: str, small: MakeConfig, dataset: Dataset
) -> None:
    settings = ("schedule.workloads=1", "train.epochs=4", "optimizer.warmup_epochs=2", "runtime.device=cpu")
    config = small(f"optimizer.lr_schedule={schedule}", *settings)
    result = gcpsl.train(config, dataset=dataset)
    assert len({record.lr for record in result.epochs}) == {"constant": 3, "cosine": 4}[schedule]
    bench = Bench.of(config)
    runtime = bench.runtime()
    for record in result.epochs:
        runtime.run_epoch(bench.schedule(record.epoch), record.lr, EpochProgress.start(1), Watcher())
    trained = load_file(result.path / "model.safetensors")
    assert all(torch.equal(trained[name], tensor) for name, tensor in runtime.model_state().items())


def test_an_impossible_device_is_refused(small: MakeConfig) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ConfigError, match="no CUDA device"):
        gcpsl.train(small("runtime.device=cuda"), dataset=random_dataset())


def test_a_diverged_run_stops_and_says_so(small: MakeConfig, dataset: Dataset) -> None:
    with pytest.raises(RunError, match=r"diverged; start again with a lower optimizer\.lr \(now 1e\+20\)"):
        gcpsl.train(small("optimizer.lr=1e20"), dataset=dataset)


def test_rounds_of_one_sample_are_refused_where_batch_norm_needs_two(small: MakeConfig, dataset: Dataset) -> None:
    def make(shape: tuple[int, int, int], classes: int) -> nn.Module:
        layers = [nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.BatchNorm1d(16), nn.Linear(16, classes)]
        return nn.Sequential(*layers)

    with pytest.raises(ConfigError, match=r"single sample.*raise schedule\.batch_size \(now 1\)"):
        gcpsl.train(small("schedule.batch_size=1", "model.cut=2"), dataset=dataset, model=make)
    assert gcpsl.train(small("schedule.batch_size=1", "train.epochs=1", "optimizer.lr=1e-4"), dataset=dataset).finished


def test_a_resumed_run_keeps_the_clusters_it_began_with(small: MakeConfig, dataset: Dataset) -> None:
    folder = RunFolder.create(small(), {})
    assignment = {str(k): k % 2 for k in range(8)}
    folder.write_json("assignment.json", {"rule": "label_aware", "objective": None, "assignment": assignment})
    resumed = gcpsl.resume(folder.path, dataset=dataset)

    def alternate(fleet: Fleet, clusters: int, _: np.random.Generator) -> IntArray:
        return np.arange(fleet.clients) % clusters

    fresh = gcpsl.train(small(), dataset=dataset, rule=alternate)
    assert [r.test_loss for r in resumed.epochs] == [r.test_loss for r in fresh.epochs]


class LeavesInTheThirdEpoch(Silent):
    def epoch_done(self, record: EpochRecord) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt


def test_a_fast_slot_trains_on_more_and_a_resumed_run_agrees(small: MakeConfig, dataset: Dataset) -> None:
    speeds = ("clustering.speeds=[3, 1]", "train.epochs=4", "run.checkpoint_every_s=0")
    whole = gcpsl.train(small(*speeds, "run.name=whole"), dataset=dataset)
    fast, slow = whole.epochs[0].rounds
    assert fast == pytest.approx(3 * slow, abs=2)
    with pytest.raises(KeyboardInterrupt):
        gcpsl.train(small(*speeds, "run.name=left"), dataset=dataset, display=LeavesInTheThirdEpoch())
    folder = RunFolder(whole.path.parent / "left")
    assert folder.config().clustering.speeds == (3, 1)
    resumed = gcpsl.resume(folder.path, dataset=dataset)
    stored, expected = (RunFolder(run.path).read_json("assignment.json") for run in (resumed, whole))
    assert stored is not None
    assert expected is not None
    assert stored["assignment"] == expected["assignment"]
    assert [(r.rounds, r.loss, r.test_loss) for r in resumed.epochs] == [
        (r.rounds, r.loss, r.test_loss) for r in whole.epochs
    ]
    one, other = load_file(whole.path / "model.safetensors"), load_file(resumed.path / "model.safetensors")
    assert all(torch.equal(one[name], other[name]) for name in one)


def stopped_run(config: Config, dataset: Dataset | None) -> RunFolder:
    """A run that was killed once it had been set up."""
    result = gcpsl.train(config, dataset=dataset)
    (result.path / "summary.json").unlink()
    return RunFolder(result.path)


def test_a_run_of_ones_own_data_asks_for_it_again(small: MakeConfig, dataset: Dataset) -> None:
    folder = stopped_run(small(), dataset)
    with pytest.raises(RunError, match=r"began with a dataset .* gcpsl\.resume\('.*', dataset=\.\.\.\)"):
        gcpsl.resume(folder.path)
    assert gcpsl.resume(folder.path, dataset=dataset).finished


def test_a_run_is_not_continued_on_other_data_or_another_model(small: MakeConfig, dataset: Dataset) -> None:
    folder = stopped_run(small(), dataset)
    with pytest.raises(RunError, match=r"the data of the run .* is not what it began with"):
        gcpsl.resume(folder.path, dataset=random_dataset(seed=1))
    config = folder.path / "config.toml"
    config.write_text(config.read_text().replace('name = "mlp"', 'name = "small_cnn"'))
    with pytest.raises(RunError, match=r"the model of the run .* is not what it began with"):
        gcpsl.resume(folder.path, dataset=dataset)


def test_moved_data_is_found_where_the_caller_says(
    small: MakeConfig, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train, test = dataset.train, dataset.test
    np.savez("mine.npz", x_train=train.images, y_train=train.labels, x_test=test.images, y_test=test.labels)
    folder = stopped_run(small("data.name=npz", "data.root=mine.npz"), None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert gcpsl.resume(folder.path).finished
    (folder.path / "summary.json").unlink()
    (tmp_path / "mine.npz").rename("moved.npz")
    with pytest.raises(ConfigError, match="would change the run"):
        gcpsl.resume(folder.path, "optimizer.lr=1")
    assert gcpsl.resume(folder.path, "data.root=moved.npz").finished


def test_training_leaves_the_callers_number_of_threads(small: MakeConfig, dataset: Dataset) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    gcpsl.train(small("runtime.threads=1"), dataset=dataset)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
    with pytest.raises(ConfigError, match=r"runtime\.threads = 100000, but this machine has"):
        gcpsl.train(small("runtime.threads=100000"), dataset=dataset)


def test_divergence_in_the_last_update_is_seen_too(small: MakeConfig, dataset: Dataset) -> None:
    with pytest.raises(RunError, match="diverged"):
        gcpsl.train(small("optimizer.lr=1e30", "schedule.batch_size=500", "train.epochs=1"), dataset=dataset)


def test_lone_samples_of_a_later_epoch_are_refused_as_well(small: MakeConfig) -> None:
    def make(shape: tuple[int, int, int], classes: int) -> nn.Module:
        layers = [nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.BatchNorm1d(16), nn.Linear(16, classes)]
        return nn.Sequential(*layers)

    few = random_dataset(samples=26, classes=2)
    uneven = ["partition.kind=shards", "partition.shards_per_client=1", "schedule.batch_size=5", "train.epochs=40"]
    redrawn = ["schedule.assignment=redrawn", "clustering.rule=random", "model.cut=2", "data.validation_fraction=0"]
    with pytest.raises(ConfigError, match="single sample"):
        gcpsl.train(small(*uneven, *redrawn, "schedule.batch_size=2"), dataset=few, model=make)
