"""Several ranks train as one process does, to the bit, and say who is missing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import random_dataset
from runtimes.processes import on_ranks
from runtimes.test_contract import REGIMES, Bench, Watcher
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from gcpsl import fusion, training
from gcpsl.config import Config
from gcpsl.errors import ConfigError, RanksError
from gcpsl.ranks import Alone, Ranks, own_workloads
from gcpsl.runtimes.base import EpochProgress, Interrupted, Job
from gcpsl.runtimes.eager import EagerRuntime
from gcpsl.runtimes.graphed import GraphedRuntime
from gcpsl.runtimes.slots import Slots, refuse_sharing_gpus

MakeConfig = Callable[..., Config]
CPU = torch.device("cpu")
WORKLOADS = 3


def trained(config: Config, runtime: str, ranks: Ranks) -> dict[str, Any]:
    """Everything that two epochs leave behind on a rank, as plain numbers."""
    bench = Bench.of(config, runtime=runtime)
    changed = bench.config.runtime.model_copy(update={"precision": "fp32"})
    config = bench.config.model_copy(update={"runtime": changed})
    kinds = {"eager": EagerRuntime, "graphed": GraphedRuntime, "graphed, stacked": GraphedRuntime}
    made = kinds[runtime](Job(config, bench.data, bench.model, ranks=ranks))
    own = own_workloads(ranks.rank, ranks.size, WORKLOADS)
    for epoch in (1, 2):
        progress = EpochProgress.start(len(own), ranks.size)
        made.run_epoch(bench.schedule(epoch).part(own), config.optimizer.lr, progress, Watcher())
    everyones = progress.everyones(own, WORKLOADS, ranks)
    score = made.evaluate("test")
    state = {name: tensor.tolist() for name, tensor in made.state().items()}
    model = {name: tensor.tolist() for name, tensor in made.model_state().items()}
    seen = (score.accuracy, score.loss, everyones.rounds_done, everyones.loss_sums, everyones.drifts)
    return {"state": state, "model": model, "seen": seen}


def trained_on_rank(configs: dict[str, Config]) -> dict[str, dict[str, Any]]:
    torch.set_num_threads(1)
    with closing(Slots(WORKLOADS, CPU, timeout_s=60)) as ranks:
        return {name: trained(config, name.partition(": ")[0], ranks) for name, config in configs.items()}


@pytest.mark.parametrize("size", [2, 3])
def test_every_regime_ends_with_the_bits_of_one_process(size: int, small: MakeConfig, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    settings = ("model.name=small_cnn", "schedule.workloads=3", "schedule.batch_size=12", "train.eval_batch_size=7")
    configs = {
        f"{runtime}: {name}": small(*settings, "runtime.device=cpu", *regime)
        for name, regime in REGIMES.items()
        if name != "single worker"
        for runtime in ("eager", "graphed", "graphed, stacked")
    }
    several = on_ranks(size, tmp_path, trained_on_rank, configs)
    for name, config in configs.items():
        alone = trained(config, name.partition(": ")[0], Alone())
        stacked_steps = name.startswith("graphed") and "synchronise=step" in " ".join(REGIMES[name.partition(": ")[2]])
        together = {key: value for rank in several for key, value in rank[name]["state"].items()}
        if stacked_steps:  # one process averages gradients in float32, on the device
            assert torch.allclose(_flat(together), _flat(alone["state"]), atol=1e-4), name
            continue
        assert together == alone["state"], name
        for rank in several:
            assert rank[name]["model"] == alone["model"], name
            assert rank[name]["seen"] == alone["seen"], name


class Impatient(Watcher):
    """Asks to stop from its second round on."""

    def stop_asked(self) -> bool:
        return self.rounds >= 1


def stopped_on_rank(config: Config) -> tuple[list[int], dict[str, Any]]:
    """An epoch in lockstep that the last rank stops and all go on with."""
    torch.set_num_threads(1)
    with closing(Slots(WORKLOADS, CPU, timeout_s=60)) as ranks:
        bench = Bench.of(config)
        runtime = EagerRuntime(Job(config, bench.data, bench.model, ranks=ranks))
        own = own_workloads(ranks.rank, ranks.size, WORKLOADS)
        schedule, progress = bench.schedule(1).part(own), EpochProgress.start(len(own), ranks.size)
        watcher = Impatient() if ranks.rank == ranks.size - 1 else Watcher()
        with pytest.raises(Interrupted):
            runtime.run_epoch(schedule, config.optimizer.lr, progress, watcher)
        done = list(progress.rounds_done)
        runtime.run_epoch(schedule, config.optimizer.lr, progress, Watcher())
        return done, {name: tensor.tolist() for name, tensor in runtime.model_state().items()}


@pytest.mark.parametrize("regime", ["data-parallel", "clusters in lockstep"])
def test_in_lockstep_one_rank_that_stops_stops_all_after_the_same_round(
    regime: str, small: MakeConfig, tmp_path: Path
) -> None:
    config = small("schedule.workloads=3", "runtime.device=cpu", *REGIMES[regime])
    torch.set_num_threads(1)
    bench = Bench.of(config)
    alone = bench.run(EagerRuntime(Job(config, bench.data, bench.model)), epochs=1)
    expected = {name: tensor.tolist() for name, tensor in alone.model_state().items()}
    (first, model), (second, _) = on_ranks(2, tmp_path, stopped_on_rank, config)
    assert first + second == [2, 2, 2]
    assert model == expected


def _flat(state: dict[str, Any]) -> torch.Tensor:
    return torch.cat([torch.tensor(state[name], dtype=torch.float64).flatten() for name in sorted(state)])


def fused_on_rank(seed: int) -> tuple[list[list[float]], list[list[float]]]:
    """Random replicas of odd lengths, fused over the ranks, and all of them at once."""
    generator = torch.Generator().manual_seed(seed)
    weights = [0.2, 0.5, 0.3]
    counters = torch.tensor([7, 2**40, 3])
    replicas = [[torch.randn(size, generator=generator) for size in (5, 0, 17)] + [counters + n] for n in range(3)]
    expected = [torch.empty_like(buffer) for buffer in replicas[0]]
    fusion.fuse(replicas, weights, expected)
    with closing(Slots(WORKLOADS, CPU, timeout_s=60)) as ranks:
        own = own_workloads(ranks.rank, ranks.size, WORKLOADS)
        into = [torch.empty_like(buffer) for buffer in expected]
        ranks.fuse(replicas[own.start : own.stop], weights, into)
    return [t.tolist() for t in into], [t.tolist() for t in expected]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_fusion_over_ranks_is_fusion(size: int, tmp_path: Path) -> None:
    for into, expected in on_ranks(size, tmp_path, fused_on_rank, 5):
        assert into == expected


def somebody_is_missing() -> str:
    ranks = Slots(WORKLOADS, CPU, timeout_s=1.5)  # not closed: whoever waited too long is gone without a word
    assert ranks.meet("the start", f"rank {ranks.rank}").words == ("rank 0", "rank 1", "rank 2")
    if ranks.rank == 1:
        time.sleep(3)
        return "late"
    with pytest.raises(RanksError) as error:
        ranks.meet("the barrier after round 5 of epoch 2")
    return str(error.value)


def test_a_rank_that_does_not_come_is_named_with_the_place(tmp_path: Path) -> None:
    first, late, third = on_ranks(3, tmp_path, somebody_is_missing)
    assert late == "late"
    for message in (first, third):
        assert message.startswith("rank 1 didn't come to the barrier after round 5 of epoch 2 within 1.5 s")


def the_store_falls_silent() -> str:
    ranks = Slots(WORKLOADS, CPU, timeout_s=1.5)  # not closed: whoever hears nothing is gone without a word
    first, _ = ranks.meet("the start", str(os.getpid())).words
    if ranks.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        return "stopped for a while"
    with pytest.raises(RanksError) as error:
        ranks.meet("the barrier after round 5 of epoch 2")
    os.kill(int(first), signal.SIGCONT)
    return str(error.value)


def test_a_rank_cut_off_from_the_store_gives_up_too(tmp_path: Path) -> None:
    _, message = on_ranks(2, tmp_path, the_store_falls_silent)
    assert message.startswith("rank 1 heard nothing from the host of the store at the barrier after round 5 of epoch 2")


class Counting:
    """A store that counts the questions it is asked, each a round trip where the store is on another host."""

    def __init__(self, store: Any) -> None:
        self._store, self.asked = store, 0

    def __getattr__(self, name: str) -> Any:
        self.asked += name not in ("append", "set")  # which nobody waits for
        return getattr(self._store, name)


def questions_on_rank() -> int:
    with closing(Slots(WORKLOADS, CPU, timeout_s=30)) as ranks:
        ranks.meet("the start")
        time.sleep(1.0 * ranks.rank)
        counting = Counting(ranks._store)
        ranks._store = counting  # type: ignore[assignment]
        ranks.meet("a barrier")
        asked = counting.asked
        ranks.meet("the end")
        return asked


def test_the_last_to_come_to_a_barrier_asks_the_store_once(tmp_path: Path) -> None:
    first, last = on_ranks(2, tmp_path, questions_on_rank)
    assert last == 1 < first


def starts_anew(port: int, attempt: int) -> tuple[str, ...]:
    """As when a host is back: the store is that of the attempt before, and torchrun's count is of this host alone."""
    count = attempt * int(os.environ["RANK"])
    more = {"MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": count}
    os.environ |= {name: str(value) for name, value in more.items()}
    with closing(Slots(WORKLOADS, CPU, timeout_s=30)) as ranks:
        return ranks.meet("the start", f"{ranks.rank} in attempt {attempt}").words


def test_ranks_that_start_anew_hear_nothing_of_those_before_them(tmp_path: Path) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for attempt in range(2):
        expected = tuple(f"{rank} in attempt {attempt}" for rank in range(2))
        assert on_ranks(2, tmp_path, starts_anew, store.port, attempt) == [expected, expected]


def waits_on_rank() -> float:
    with closing(Slots(WORKLOADS, CPU, timeout_s=30)) as ranks:
        ranks.meet("the start")
        time.sleep(0.4 * ranks.rank)
        return ranks.meet("a barrier").waited_s


def test_waiting_is_measured(tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path, waits_on_rank)
    assert 0.3 < first < 2
    assert second < 0.3


def run_on_rank(config: Config) -> tuple[int, list[dict[str, Any]]]:
    torch.set_num_threads(1)
    result = training.train(config, training.Pieces(dataset=random_dataset()))
    assert result.summary is not None
    return result.summary.workers, [asdict(record) for record in result.epochs]


@pytest.mark.parametrize("regime", ["gcpsl", "sequential", "repartitioned", "data-parallel"])
def test_a_whole_run_leaves_what_one_process_leaves(regime: str, small: MakeConfig, tmp_path: Path) -> None:
    config = small("model.name=small_cnn", "data.flip=true", "runtime.device=cpu", "run.name=run", *REGIMES[regime])
    one, other = tmp_path / "alone", tmp_path / "several"
    alone = training.train(_in(config, one), training.Pieces(dataset=random_dataset()))
    several = on_ranks(2, tmp_path, run_on_rank, _in(config, other))
    clocks = {"busy_s", "local_s", "fusion_s", "validation_s", "test_s", "speedup_real", "wait_s"}
    for workers, records in several:
        assert workers == 2
        for record, expected in zip(records, alone.epochs, strict=True):
            assert {k: v for k, v in record.items() if k not in clocks} == {
                k: v for k, v in asdict(expected).items() if k not in clocks
            }
            assert len(record["wait_s"]) == 2
            if regime == "sequential":
                assert sum(record["busy_s"]) <= record["local_s"]
    one_assignment, other_assignment = (
        json.loads((root / "run" / "assignment.json").read_text()) for root in (one, other)
    )
    assert one_assignment["assignment"] == other_assignment["assignment"]
    for name in ("model.safetensors", "best.safetensors"):
        assert (other / "run" / name).read_bytes() == (one / "run" / name).read_bytes()


def _in(config: Config, root: Path) -> Config:
    return config.model_copy(update={"run": config.run.model_copy(update={"root": root})})


def test_slots_that_would_share_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    refuse_sharing_gpus(2)
    with pytest.raises(ConfigError, match="3 slots on a machine with 2 GPUs, and each needs one of its own"):
        refuse_sharing_gpus(3)
