"""All workloads on one device with the interpreter out of the way: each round is a captured CUDA graph.

The epoch's plan, the counters of its rounds and the losses live on the device, so replaying a round needs nothing from
the host, which looks at the losses about ten times a second. What a round does is in `lanes`. A model that can't be
captured trains as in the eager runtime. On the CPU nothing is captured, and everything else is the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from typing_extensions import override

from gcpsl.data.device import DeviceSamples
from gcpsl.errors import ConfigError, RunError
from gcpsl.runtimes.base import EpochProgress, Interrupted, Job, Observer
from gcpsl.runtimes.capture import Graphs, Work
from gcpsl.runtimes.eager import EagerRuntime
from gcpsl.runtimes.lanes import Lane, Lanes
from gcpsl.runtimes.numerics import Numerics, graphed_precision
from gcpsl.schedule import EpochSchedule, Phase

REPORT_S = 0.1
GIB = 1 << 30
JOINT_UPDATE = (0, 0)


class GraphedRuntime(EagerRuntime):
    """See `runtimes.base.Runtime`."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        runtime = job.config.runtime
        precision = graphed_precision(runtime, self.device)
        self._numerics = Numerics(precision, runtime.deterministic)
        self._say = job.say
        segments = [workload.segments() for workload in self.workloads]
        beyond = job.config.schedule.synchronise == "step" and job.ranks.size > 1
        if beyond and precision == "fp16":
            raise ConfigError(
                "runtime.precision = 'fp16' can't average gradients over ranks, whose loss scales differ; use 'bf16'"
            )
        self._lanes = Lanes(job.config, segments, self._samples["train"], precision, averaged_elsewhere=beyond)
        self._graphs = Graphs(self.device)
        self._uncaptured = False
        self._chunk = 1

    @override
    def prepare(self, schedule: EpochSchedule) -> None:
        missing = [key for key in self._rounds_of(schedule) if key not in self._graphs]
        if not missing or self._uncaptured:
            return
        started, out_of_memory = time.perf_counter(), False
        try:
            with self._numerics.set(), self._untouched():
                self._capture(schedule, missing)
        except torch.cuda.OutOfMemoryError:
            out_of_memory = True  # advice has to wait until the error's own frames hold no memory any more
        except RuntimeError as error:
            if self._lanes.network is not None or self.device.type == "cpu":
                raise
            self._fall_back(str(error).splitlines()[0])
            return
        if out_of_memory:
            raise RunError(self._what_to_lower())
        if self.device.type == "cuda":
            self._introduce(time.perf_counter() - started)

    def _rounds_of(self, schedule: EpochSchedule) -> list[tuple[int, int]]:
        """Every (first replica of a lane, batch size) of an epoch."""
        keys = [JOINT_UPDATE] if self._lanes.joint else []
        for group in self._lanes.groups:
            for lane in group:
                sizes = {self._config.schedule.batch_size}
                if self._lanes.network is None:
                    sizes = {int(size) for size in schedule.plans[lane.first].sizes}
                keys += [(lane.first, size) for size in sorted(sizes, reverse=True)]
        return keys

    def _capture(self, schedule: EpochSchedule, keys: Sequence[tuple[int, int]]) -> None:
        lanes = self._lanes
        lanes.upload(schedule)
        lanes.turn_to([0] * len(self.workloads), schedule.rounds, lr=0.0)
        if lanes.network is not None and self.device.type == "cuda":
            evaluated = [self._samples["validation"], self._samples["test"]]
            lanes.compiled_ahead(evaluated, self._config.schedule.batch_size)
        by_first = {lane.first: lane for group in lanes.groups for lane in group}
        for key in keys:
            self._graphs.capture(key, self._work(by_first, key))

    def _work(self, lanes: Mapping[int, Lane], key: tuple[int, int]) -> Work:
        first, size = key
        if key == JOINT_UPDATE:
            return partial(self._lanes.update, self._lanes.everyone)
        return partial(self._lanes.gradients if self._lanes.joint else self._lanes.round, lanes[first], size)

    @contextmanager
    def _untouched(self) -> Iterator[None]:
        """Whatever runs inside leaves replicas, optimizers and random numbers as they were."""
        states = self._lanes.states()
        kept = [state.clone() for state in states]
        try:
            with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
                yield
        finally:
            for state, value in zip(states, kept, strict=True):
                state.copy_(value)

    def _introduce(self, seconds: float) -> None:
        lanes, n = self._lanes, len(self.workloads)
        how = "computed together" if lanes.network is not None else f"a graph each, because {lanes.why_modules}"
        size = lanes.replica_bytes + self._graphs.bytes_held / n
        self._say(
            f"{n} replicas in {self._numerics.precision}, {how}: captured in {seconds:.1f} s, "
            f"{size / GIB:.2f} GiB of GPU memory per workload"
        )

    def _fall_back(self, reason: str) -> None:
        self._uncaptured = True
        self._lanes.stack.gradients.zero_()  # eager rounds add to them
        self._numerics = Numerics("fp32", self._config.runtime.deterministic)
        self._say(
            f"model '{self._config.model.name}' can't be captured in a CUDA graph ({reason}): "
            "it trains as in the eager runtime, in fp32 and several times slower"
        )

    def _what_to_lower(self) -> str:
        """Advice after memory ran out, from what two small batches take."""
        batch, n = self._config.schedule.batch_size, len(self.workloads)
        free, total = torch.cuda.mem_get_info(self.device)
        free += torch.cuda.memory_reserved(self.device)  # by this process, which may use it anew
        gpu = f"of {total / GIB:.0f} GiB, {free / GIB:.0f} are free or this process's"
        small = max(1, batch // 16)
        try:
            one, two = self._peak_bytes(small), self._peak_bytes(2 * small)
        except torch.cuda.OutOfMemoryError:
            return f"out of GPU memory ({gpu}): no batch of {n} workloads fits; lower schedule.workloads"
        held, per_sample = torch.cuda.memory_allocated(self.device), max(1, (two - one) // small)
        fits = min(batch - 1, int(0.9 * (free - held) / per_sample))
        return (
            f"out of GPU memory ({gpu}): {n} workloads of batch {batch} need about "
            f"{(held + batch * per_sample) / GIB:.0f} GiB; "
            f"lower schedule.batch_size to {max(1, fits)} or fewer, or schedule.workloads"
        )

    def _peak_bytes(self, size: int) -> int:
        """The most memory that a round of this batch size takes above what is held."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        for lane in self._lanes.groups[0]:
            self._lanes.gradients(lane, size)
        return torch.cuda.max_memory_allocated(self.device) - before

    @override
    def run_epoch(self, schedule: EpochSchedule, lr: float, progress: EpochProgress, observer: Observer) -> None:
        self.prepare(schedule)
        super().run_epoch(schedule, lr, progress, observer)

    @override
    def _run_phase(
        self, schedule: EpochSchedule, phase: Phase, lr: float, progress: EpochProgress, observer: Observer
    ) -> None:
        if self._uncaptured:
            super()._run_phase(schedule, phase, lr, progress, observer)
            return
        stops = [min(phase.stop, rounds) for rounds in schedule.rounds]
        self._lanes.upload(schedule)
        self._lanes.turn_to(progress.rounds_done, stops, lr)
        if schedule.lockstep and self._ranks.size > 1:
            self._lockstep_with_others(schedule, phase, progress, observer)
            return
        for group in self._lanes.groups:
            rows = [row for lane in group for row in lane.replicas]
            while (left := max(stops[row] - progress.rounds_done[row] for row in rows)) > 0:
                started = time.perf_counter()
                count = min(left, self._chunk)
                before = list(progress.rounds_done)
                for ahead in range(count):
                    self._replay(group, schedule, [done + ahead for done in before], stops)
                losses = self._lanes.losses()
                seconds = time.perf_counter() - started
                self._chunk = max(1, min(2 * count, round(count * REPORT_S / seconds)))
                turns = {row: range(before[row], min(before[row] + count, stops[row])) for row in rows}
                observer.rounds_done(*_settle(progress, schedule, turns, losses, seconds))

    def _lockstep_with_others(
        self, schedule: EpochSchedule, phase: Phase, progress: EpochProgress, observer: Observer
    ) -> None:
        """Gradients are averaged between two graphs; the host has to wait for the other ranks anyway."""
        (group,) = self._lanes.groups
        for t in range(self._first_round(phase, progress), phase.stop):
            started = time.perf_counter()
            turns = {n: t for n, plan in enumerate(schedule.plans) if t < plan.rounds}
            if turns and self._lanes.network is not None:
                self._graphs.replay((group[0].first, self._config.schedule.batch_size))
            elif turns:
                self._replay_gradients(group, schedule, turns)
            stop = self._average_gradients(schedule.round_weights(t), stop=observer.stop_asked())
            self._graphs.replay(JOINT_UPDATE)
            losses = self._lanes.losses()
            if turns:
                done = {n: range(t, t + 1) for n in turns}
                observer.rounds_done(*_settle(progress, schedule, done, losses, time.perf_counter() - started))
            if stop:
                raise Interrupted

    def _replay(self, group: list[Lane], schedule: EpochSchedule, turns: list[int], stops: list[int]) -> None:
        """One round of every replica of the group that has one left."""
        if self._lanes.network is not None:
            self._graphs.replay((group[0].first, self._config.schedule.batch_size))
            return
        self._replay_gradients(group, schedule, {n: t for n, t in enumerate(turns) if t < stops[n]})
        if self._lanes.joint:
            self._graphs.replay(JOINT_UPDATE)

    def _replay_gradients(self, group: list[Lane], schedule: EpochSchedule, turns: Mapping[int, int]) -> None:
        """Those rounds of the group's replicas, each by its own graph."""
        for lane in group:
            n = lane.first
            if n in turns:
                if self._graphs.draws:
                    self._seed_noise(n, turns[n])
                self._graphs.replay_beside((n, int(schedule.plans[n].sizes[turns[n]])))
        self._graphs.join()

    @override
    def _scores(self, samples: DeviceSamples, indices: Tensor) -> Tensor:
        return super()._scores(samples, indices) if self._uncaptured else self._lanes.scores(samples, indices)

    @override
    def state(self) -> dict[str, Tensor]:
        scaling = self._lanes.scaling()
        return super().state() | {
            f"{number}.{name}": values_n[n].clone()
            for n, number in enumerate(self._numbers)
            for name, values_n in scaling.items()
        }

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        super().restore(state)
        self._lanes.adopt_optimizers()
        for name, values_n in self._lanes.scaling().items():
            for n, number in enumerate(self._numbers):
                values_n[n] = state[f"{number}.{name}"]


def _settle(
    progress: EpochProgress,
    schedule: EpochSchedule,
    turns: Mapping[int, range],
    losses: Sequence[Sequence[float]],
    seconds: float,
) -> tuple[float, int]:
    """Count rounds that are done. Returns their mean loss and number. Replicas share the time by their samples."""
    sizes = {n: schedule.plans[n].sizes[list(rounds)] for n, rounds in turns.items()}
    samples = sum(int(size.sum()) for size in sizes.values())
    total = 0.0
    for n, rounds in turns.items():
        loss = sum(losses[n][t] * int(size) for t, size in zip(rounds, sizes[n], strict=True))
        progress.loss_sums[n] += loss
        progress.rounds_done[n] += len(rounds)
        progress.busy_s[n] += seconds * int(sizes[n].sum()) / samples
        total += loss
    progress.local_s += seconds
    return total / samples, sum(len(rounds) for rounds in turns.values())
