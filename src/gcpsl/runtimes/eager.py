"""The plain runtime: every round is ordinary PyTorch, one workload after another in this process.

It is the reference that the others are pinned to. Workloads are independent between barriers, so the order in which
they run changes nothing; `concurrent` and `sequential` schedules differ here only in how their rounds are accounted.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gcpsl.config import RuntimeConfig
from gcpsl.data import FederatedData, Samples
from gcpsl.data.device import DeviceSamples
from gcpsl.errors import ConfigError
from gcpsl.flat import FlatSegment
from gcpsl.fusion import relative_drift, squared_distance
from gcpsl.ranks import own_workloads
from gcpsl.runtimes.base import EpochProgress, Interrupted, Job, Observer, Score
from gcpsl.runtimes.numerics import Numerics
from gcpsl.schedule import EpochSchedule, Phase
from gcpsl.seeds import Purpose, integer_seed
from gcpsl.workload import Clients, ReplicaClients, Server, SharedClients, Workload

SIDES = ("client", "server")
TINY_ROUND_VALUES = 20_000


class EagerRuntime:
    """See `runtimes.base.Runtime`."""

    def __init__(self, job: Job) -> None:
        config = job.config
        self.device = choose_device(config.runtime)
        torch.set_num_threads(threads_for(job))
        self._config = config
        self._model = job.model
        self._samples = self._on_device(job.data)
        self._ranks, n = job.ranks, config.schedule.workloads
        self._numbers = own_workloads(job.ranks.rank, job.ranks.size, n)
        self.workloads = [self._workload() for _ in self._numbers]
        self._weights = (1 / n,) * n
        self._numerics = Numerics("fp32", config.runtime.deterministic)
        self._mean_kept: list[Tensor] = []
        self._always_fused = n == 1 or config.schedule.synchronise != "never"

    def _on_device(self, data: FederatedData) -> dict[str, DeviceSamples]:
        def moved(samples: Samples, **augmentation: Any) -> DeviceSamples:
            channels_last = self._config.runtime.channels_last
            return DeviceSamples(samples, data.mean, data.std, self.device, channels_last=channels_last, **augmentation)

        train = moved(data.train, crop_padding=self._config.data.crop_padding, flip=self._config.data.flip)
        return {"train": train, "validation": moved(data.validation), "test": moved(data.test)}

    def _workload(self) -> Workload:
        def segment(module: nn.Module) -> FlatSegment:
            channels_last = self._config.runtime.channels_last
            optimizer = self._config.optimizer
            return FlatSegment(module, optimizer, channels_last=channels_last, device=self.device)

        def client_segment() -> FlatSegment:
            return segment(self._model.client)

        shared = self._config.runtime.client_side == "shared"
        train = self._samples["train"]
        clients: Clients = SharedClients(client_segment(), train) if shared else ReplicaClients(client_segment, train)
        return Workload(clients, Server(segment(self._model.server), self._config.train.label_smoothing))

    def prepare(self, schedule: EpochSchedule) -> None:
        """Nothing: the first round is like any other."""

    def run_epoch(self, schedule: EpochSchedule, lr: float, progress: EpochProgress, observer: Observer) -> None:
        self._weights = schedule.weights
        self._noise_seeds = [
            integer_seed(self._config.seed, Purpose.NOISE, schedule.epoch, number) for number in schedule.numbers
        ]
        for workload, members in zip(self.workloads, schedule.members, strict=True):
            workload.clients.enrol(members)
        with self._numerics.set(), torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            self._run_phases(schedule, lr, progress, observer)

    def _run_phases(self, schedule: EpochSchedule, lr: float, progress: EpochProgress, observer: Observer) -> None:
        for phase in schedule.phases[progress.phases_done :]:
            self._take_turns(schedule, phase, lr, progress, observer)
            observer.at_barrier(f"the barrier after round {phase.stop} of epoch {schedule.epoch}")
            started = time.perf_counter()
            if phase.fuse:
                progress.drifts.append(self._fuse())
            progress.fusion_s += time.perf_counter() - started
            progress.phases_done += 1

    def _take_turns(
        self, schedule: EpochSchedule, phase: Phase, lr: float, progress: EpochProgress, observer: Observer
    ) -> None:
        """All ranks at once, or one after another where the workloads are to run so."""
        if self._config.schedule.execution == "concurrent" or self._ranks.size == 1:
            self._run_phase(schedule, phase, lr, progress, observer)
            return
        before, started = progress.local_s, time.perf_counter()
        for rank in range(self._ranks.size):
            if rank == self._ranks.rank:
                self._run_phase(schedule, phase, lr, progress, observer)
            observer.at_barrier(f"the end of rank {rank}'s turn before round {phase.stop} of epoch {schedule.epoch}")
        progress.local_s = before + time.perf_counter() - started

    def _run_phase(
        self, schedule: EpochSchedule, phase: Phase, lr: float, progress: EpochProgress, observer: Observer
    ) -> None:
        run = self._lockstep if schedule.lockstep else self._one_by_one
        run(schedule, phase, lr, progress, observer)

    def _one_by_one(
        self, schedule: EpochSchedule, phase: Phase, lr: float, progress: EpochProgress, observer: Observer
    ) -> None:
        for n, (workload, plan) in enumerate(zip(self.workloads, schedule.plans, strict=True)):
            for t in range(max(phase.start, progress.rounds_done[n]), min(phase.stop, plan.rounds)):
                started = time.perf_counter()
                round_plan = plan.round(t)
                self._seed_noise(n, t)
                loss = float(workload.round(round_plan, lr))
                self._account(progress, n, loss * round_plan.size, time.perf_counter() - started)
                observer.rounds_done(loss, 1)

    def _lockstep(
        self, schedule: EpochSchedule, phase: Phase, lr: float, progress: EpochProgress, observer: Observer
    ) -> None:
        """Every workload takes round t, and all step on the mean of their gradients, weighted by batch size."""
        for t in range(self._first_round(phase, progress), phase.stop):
            rounds = {n: plan.round(t) for n, plan in enumerate(schedule.plans) if t < plan.rounds}
            total = 0.0
            for n, round_plan in rounds.items():
                started = time.perf_counter()
                self._seed_noise(n, t)
                loss = float(self.workloads[n].gradients(round_plan)) * round_plan.size
                self._account(progress, n, loss, time.perf_counter() - started)
                total += loss
            started = time.perf_counter()
            stop = self._average_gradients(schedule.round_weights(t), stop=observer.stop_asked())
            for workload in self.workloads:
                workload.update(lr)
            progress.local_s += time.perf_counter() - started
            if rounds:
                observer.rounds_done(total / sum(plan.size for plan in rounds.values()), len(rounds))
            if stop:
                raise Interrupted

    def _first_round(self, phase: Phase, progress: EpochProgress) -> int:
        """Of those that all workloads of all ranks take together; some may have had their last."""
        done = torch.zeros(self._ranks.size, dtype=torch.float64)
        done[self._ranks.rank] = max(progress.rounds_done)
        return max(phase.start, int(self._ranks.total(done).max()))

    def _seed_noise(self, n: int, t: int) -> None:
        """What modules draw in a round (dropout) follows from the round, so a resumed epoch draws the same."""
        seed = (self._noise_seeds[n] + t) % 2**63
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)

    @staticmethod
    def _account(progress: EpochProgress, n: int, loss: float, seconds: float) -> None:
        progress.loss_sums[n] += loss
        progress.rounds_done[n] += 1
        progress.busy_s[n] += seconds
        progress.local_s += seconds

    def _average_gradients(self, weights: Sequence[float], *, stop: bool) -> bool:
        """Give every workload of every rank the weighted mean gradient.

        Returns whether a rank that took this round is to stop, so that all do, where there are several.
        """
        asked = torch.full((1,), float(stop and self._ranks.size > 1), device=self.device)
        told = [(*(s.gradients for s in workload.segments()), asked) for workload in self.workloads]
        mean = [torch.empty_like(buffer) for buffer in told[0]]
        self._ranks.fuse(told, weights, mean)
        for *gradients, _ in told:
            _copy(mean[:-1], gradients)
        return self._ranks.size > 1 and bool(mean[-1] > 0)

    def _replicas(self) -> list[tuple[Tensor, ...]]:
        """Each workload's buffers, the client segment's and then the server segment's."""
        return [tuple(t for s in workload.segments() for t in s.state()) for workload in self.workloads]

    def _mean(self) -> list[Tensor]:
        """In memory that the next call uses again."""
        replicas = self._replicas()
        if not self._mean_kept:
            with torch.inference_mode(mode=False):  # to be written again outside of it
                self._mean_kept = [torch.empty_like(buffer) for buffer in replicas[0]]
        self._ranks.fuse(replicas, self._weights, self._mean_kept)
        return self._mean_kept

    def _fuse(self) -> float:
        """Replace every replica by the weighted mean. Returns how far they had drifted apart."""
        if len(self._weights) == 1:
            return 0.0
        mean, replicas = self._mean(), self._replicas()
        parameters = slice(None, None, len(mean) // len(SIDES))  # the first of each side's buffers
        squares = torch.zeros(len(self._weights), dtype=torch.float64)
        for number, replica in zip(self._numbers, replicas, strict=True):
            squares[number] = squared_distance(replica[parameters], mean[parameters])
        for workload, replica in zip(self.workloads, replicas, strict=True):
            _copy(mean, replica)
            workload.clients.broadcast()
        return relative_drift(self._ranks.total(squares).tolist(), self._weights, mean[parameters])

    @contextmanager
    def _fused(self) -> Iterator[tuple[FlatSegment, FlatSegment]]:
        """The first workload's segments, holding the mean of all replicas until the block ends."""
        own = self._replicas()[0]
        kept = [] if self._always_fused else [buffer.clone() for buffer in own]
        if kept:
            _copy(self._mean(), own)
        try:
            yield self.workloads[0].segments()
        finally:
            _copy(kept, own[: len(kept)])

    @torch.inference_mode()
    def evaluate(self, split: str) -> Score:
        samples = self._samples[split]
        batches = torch.arange(len(samples), device=self.device).split(self._config.train.eval_batch_size)
        correct, loss = torch.zeros(2, len(batches), dtype=torch.float64, device=self.device)
        with self._numerics.set(), self._fused() as segments:
            for segment in segments:
                segment.module.eval()
            for i in range(self._ranks.rank, len(batches), self._ranks.size):
                labels = samples.labels[batches[i]]
                scores = self._scores(samples, batches[i])
                correct[i] = (scores.argmax(dim=1) == labels).sum()
                loss[i] = cross_entropy(scores, labels, reduction="sum")
            for segment in segments:
                segment.module.train()
        corrects, losses = self._ranks.total(torch.stack([correct, loss]).cpu()).tolist()
        return Score(accuracy=100 * sum(corrects) / len(samples), loss=sum(losses) / len(samples))

    def _scores(self, samples: DeviceSamples, indices: Tensor) -> Tensor:
        """What the first workload's model, in eval mode, says of these samples."""
        client, server = self.workloads[0].segments()
        scores: Tensor = server.module(client.module(samples.batch(indices)))
        return scores

    def state(self) -> dict[str, Tensor]:
        named = {"weights": torch.tensor(self._weights, dtype=torch.float64)}
        for n, workload in zip(self._numbers, self.workloads, strict=True):
            for side, segment in zip(SIDES, workload.segments(), strict=True):
                named |= {f"{n}.{side}.{name}": tensor for name, tensor in segment.tensors().items()}
        return named

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._weights = tuple(state["weights"].tolist())
        for n, workload in zip(self._numbers, self.workloads, strict=True):
            for side, segment in zip(SIDES, workload.segments(), strict=True):
                prefix = f"{n}.{side}."
                segment.restore({k.removeprefix(prefix): t for k, t in state.items() if k.startswith(prefix)})
            workload.clients.broadcast()

    def model_state(self) -> dict[str, Tensor]:
        with self._fused() as segments:
            return {name: t.clone() for s in segments for name, t in s.module.state_dict().items()}

    @property
    def workers(self) -> int:
        return self._ranks.size

    def memory_bytes_max(self) -> int:
        every = torch.zeros(self._ranks.size, dtype=torch.float64)
        every[self._ranks.rank] = self._memory_bytes_max()
        return int(self._ranks.total(every).max())

    def _memory_bytes_max(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _copy(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    for theirs, mine in zip(source, target, strict=True):
        mine.copy_(theirs)


def choose_device(config: RuntimeConfig) -> torch.device:
    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise ConfigError("runtime.device = 'cuda', but PyTorch finds no CUDA device; use 'cpu' or 'auto'")
    return torch.device("cuda" if available and config.device != "cpu" else "cpu")


def threads_for(job: Job) -> int:
    """What was asked; else one where a round is tiny: a second gains little there, and on a busy machine loses much."""
    asked, cores = job.config.runtime.threads, os.cpu_count() or 1
    if asked is not None:
        if asked > cores:
            raise ConfigError(f"runtime.threads = {asked}, but this machine has {cores} cores; use at most that")
        return asked
    values_at_cut = math.prod(job.model.activation_shape) * job.config.schedule.batch_size
    return 1 if values_at_cut < TINY_ROUND_VALUES else torch.get_num_threads()
