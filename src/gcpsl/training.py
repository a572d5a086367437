"""Training a run: epochs, evaluation, metrics and checkpoints around whatever runtime executes the schedule.

`train` starts a run in a folder of its own and `resume` continues one; both return when it has ended.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gcpsl import models
from gcpsl.clustering import Clustering, Rule, cluster
from gcpsl.config import Config, OptimizerConfig, override
from gcpsl.data import Dataset, federate
from gcpsl.display import Display, Silent
from gcpsl.errors import ConfigError, RunError
from gcpsl.fleet import IntArray
from gcpsl.identity import Identity
from gcpsl.launch import agreed_folder, refuse_existing
from gcpsl.metrics import PayloadSizes
from gcpsl.models.measure import sizes_of
from gcpsl.ranks import Ranks
from gcpsl.records import EpochRecord, Summary
from gcpsl.runs import Checkpoint, RunFolder
from gcpsl.runtimes import make_runtime, open_ranks
from gcpsl.runtimes.base import EpochProgress, Interrupted, Job, Score
from gcpsl.sampling import Holdings
from gcpsl.schedule import EpochSchedule, epoch_schedule
from gcpsl.share import Share
from gcpsl.signals import StopSignals
from gcpsl.summary import Measured, Totals, best_record, epoch_record, summarise
from gcpsl.tracking import Tracker, check_trackers, open_trackers

if TYPE_CHECKING:
    from torch import nn

LEFT, DUE = "left", "due"  # what ranks say when they meet
ModelFactory = Callable[[tuple[int, int, int], int], "nn.Module"]


@dataclass(frozen=True)
class Result:
    """A run that has ended: finished, or stopped early with `summary` None."""

    path: Path
    epochs: tuple[EpochRecord, ...]
    summary: Summary | None

    @property
    def finished(self) -> bool:
        return self.summary is not None


@dataclass(frozen=True)
class Pieces:
    """The caller's own objects, each in place of what the config names. They aren't stored with the run."""

    dataset: Dataset | None = None
    model: ModelFactory | None = None
    rule: Rule | None = None


def train(config: Config, pieces: Pieces, display: Display | None = None) -> Result:
    """Train one run in a new folder below `config.run.root`; in the same one where torchrun starts it again."""
    refuse_existing(config)
    with closing(open_ranks(config)) as ranks:
        training = Training(config, pieces, ranks, display or Silent())
        return training.run(agreed_folder(config, ranks))


def resume(path: Path, pieces: Pieces, display: Display | None = None, moved: Sequence[str] = ()) -> Result:
    """Continue an interrupted run from its newest checkpoint; it ends as if it had never stopped.

    `moved` says where its data lies now, as in `data.root=/elsewhere`.
    """
    folder = RunFolder.open(path)
    if folder.read_json("summary.json") is not None:
        raise RunError(f"the run '{folder.name}' has finished already; see it with: gcpsl runs show {path}")
    for change in moved:
        if change.partition("=")[0] not in ("data.root", "partition.file"):
            raise ConfigError(
                f"'{change}' would change the run; resuming takes only data.root=... or partition.file=..."
            )
    config = override(folder.config(), *moved)
    with closing(open_ranks(config)) as ranks:
        return Training(config, pieces, ranks, display or Silent()).run(folder)


class Training:
    """One process's work on one run."""

    def __init__(self, config: Config, pieces: Pieces, ranks: Ranks, display: Display) -> None:
        self._started = time.perf_counter()
        self._threads_before = torch.get_num_threads()
        self._config, self._ranks = config, ranks
        self._first = ranks.rank == 0
        self._rule = pieces.rule
        self._display = display if self._first else Silent()
        check_trackers(config)
        self._data = data = federate(config, pieces.dataset)
        self._holdings = Holdings.of(data.owners, data.fleet.clients)
        self._clustering = self._cluster(epoch=1)
        self._model = models.build(config.model, data.input_shape, data.classes, config.seed, pieces.model)
        self._identity = Identity.of(data, self._model, [name for name, piece in vars(pieces).items() if piece])
        self._sizes = PayloadSizes.of(sizes_of(self._model))
        first = self._schedule(epoch=1)
        self._share = share = Share.of(config.schedule, first, ranks)
        self._runtime = make_runtime(Job(config, share.data(data), self._model, self._display.message, ranks))
        self._data = share.labels_only(data)
        self._runtime.prepare(share.schedule(first))
        self._records: list[EpochRecord] = []
        self._progress: EpochProgress | None = None
        self._best: tuple[EpochRecord, dict[str, torch.Tensor]] | None = None  # until it is saved
        self._wall_s_before = 0.0

    def run(self, folder: RunFolder) -> Result:
        with (
            folder.locked() if self._first else nullcontext(),
            StopSignals(self._display, several=self._ranks.size > 1) as stop,
        ):
            self._folder, self._stop = folder, stop
            if self._first:
                self._identity.keep(folder)
            self._restore(self._agreed_checkpoint())
            if self._first:
                folder.keep_epochs([record.to_json() for record in self._records])
            begun = self._keep_assignment()
            self._setup_s = time.perf_counter() - self._started
            self._introduce(begun=begun)
            self._trackers = self._open_trackers()
            self._checkpointed = time.perf_counter()
            finished = False
            try:
                while len(self._records) < self._config.train.epochs:
                    self._epoch()
                finished = True
            except Interrupted:
                self._save_checkpoint()
            finally:
                self._save_best()
                self._display.close()
                for tracker in self._trackers:
                    tracker.close(finished=finished)
                torch.set_num_threads(self._threads_before)
            return self._finish() if finished else self._stopped()

    def _open_trackers(self) -> list[Tracker]:
        if not self._first:
            return []
        return open_trackers(self._config, self._folder, len(self._records) + 1, self._display.message)

    def _stopped(self) -> Result:
        self._display.message(f"Stopped. Continue with: gcpsl runs resume {self._folder.path}")
        return Result(self._folder.path, tuple(self._records), None)

    def _cluster(self, epoch: int) -> Clustering | None:
        """The assignment for an epoch; None where every workload draws from all clients."""
        schedule = self._config.schedule
        if schedule.draw == "all":
            return None
        redraw = epoch - 1 if schedule.assignment == "redrawn" else 0
        return cluster(
            self._config.clustering,
            self._data.fleet,
            schedule.workloads,
            self._config.seed,
            redraw,
            rule=self._rule,
        )

    def _schedule(self, epoch: int) -> EpochSchedule:
        assignment, seed = self._assignment(epoch), self._config.seed
        schedule = epoch_schedule(self._config.schedule, self._holdings, assignment, seed=seed, epoch=epoch)
        if min(plan.sizes.min() for plan in schedule.plans) == 1:
            self._refuse_lone_samples()
        return schedule

    def _refuse_lone_samples(self) -> None:
        """A round of one sample is no batch to a BatchNorm that sees one value per channel."""
        with torch.no_grad():
            try:
                copy.deepcopy(self._model.whole()).train()(torch.zeros(1, *self._data.input_shape))
            except ValueError as error:
                raise ConfigError(
                    f"some rounds have a single sample, which this model's BatchNorm can't train on ({error}); "
                    f"raise schedule.batch_size (now {self._config.schedule.batch_size}) or lower schedule.workloads"
                ) from None

    def _assignment(self, epoch: int) -> IntArray:
        if self._config.schedule.assignment == "redrawn":
            self._clustering = self._cluster(epoch)
        if self._clustering is None:
            return np.zeros(self._data.fleet.clients, dtype=np.int64)
        return self._clustering.assignment

    def _epoch(self) -> None:
        epoch = len(self._records) + 1
        schedule = self._schedule(epoch)
        own = self._share.schedule(schedule)
        progress = self._progress or EpochProgress.start(len(own.plans), self._ranks.size)
        self._progress, self._lockstep = progress, schedule.lockstep
        self._display.epoch_started(epoch, sum(own.rounds), sum(progress.rounds_done))
        lr = learning_rate(self._config.optimizer, epoch, self._config.train.epochs)
        self._runtime.run_epoch(own, lr, progress, self)
        record = self._evaluate(schedule, lr, progress)
        self._records.append(record)
        self._progress = None
        if best_record(self._records) is record:
            self._best = record, self._runtime.model_state()
        if self._first:
            self._folder.log_epoch(record.to_json())
        for tracker in self._trackers:
            tracker.log(record)
        self._display.epoch_done(record)
        self._checkpoint_if_due(f"the end of epoch {epoch}")

    def rounds_done(self, loss: float, rounds: int) -> None:
        self._refuse_divergence(loss)
        self._display.rounds_done(loss, rounds)
        if self._ranks.size == 1:
            if self._stop.asked:
                raise Interrupted
            self._checkpoint_if_due("a round")
        elif self._stop.asked and not self._lockstep:
            self._ranks.meet("a stop that was asked for", LEFT)
            raise Interrupted

    def stop_asked(self) -> bool:
        return self._stop.asked

    def at_barrier(self, place: str) -> None:
        """Wait for the others, and leave with them if any of them has been asked to stop."""
        meeting = self._ranks.meet(place, LEFT if self._stop.asked and self._ranks.size > 1 else "")
        assert self._progress is not None
        self._progress.waits_s[self._ranks.rank] += meeting.waited_s
        if LEFT in meeting.words:
            raise Interrupted

    def _refuse_divergence(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise RunError(
                f"the loss became {loss} in epoch {len(self._records) + 1}: training has diverged; "
                f"start again with a lower optimizer.lr (now {self._config.optimizer.lr:g})"
            )

    def _checkpoint_if_due(self, place: str) -> None:
        """By the first rank's clock."""
        due = time.perf_counter() - self._checkpointed >= self._config.run.checkpoint_every_s
        if self._ranks.meet(place, DUE if due else "").words[0] == DUE:
            self._save_checkpoint()

    def _evaluate(self, schedule: EpochSchedule, lr: float, progress: EpochProgress) -> EpochRecord:
        started = time.perf_counter()
        validation: Score | None = None
        if len(self._data.validation.labels):
            validation = self._runtime.evaluate("validation")
        validated = time.perf_counter()
        test = self._runtime.evaluate("test")
        tested = time.perf_counter()
        self._refuse_divergence(test.loss + (validation.loss if validation else 0.0))
        everyones = progress.everyones(self._share.numbers, self._config.schedule.workloads, self._ranks)
        measured = Measured(lr, everyones, validation, test, validated - started, tested - validated)
        return epoch_record(self._config, self._data, self._sizes, schedule, measured)

    def _save_checkpoint(self) -> None:
        """A shard by every rank, which count once the first has seen that all are there."""
        self._save_best()
        workloads = self._config.schedule.workloads
        progress = self._progress.everyones(self._share.numbers, workloads, self._ranks) if self._progress else None
        rounds = sum(sum(record.rounds) for record in self._records) + sum(progress.rounds_done if progress else [])
        digest = self._folder.save_shard(rounds, self._ranks.rank, self._ranks.size, self._runtime.state())
        digests = self._ranks.meet(f"the checkpoint after {rounds} rounds", digest).words
        meta = {
            "records": [record.to_json() for record in self._records],
            "progress": asdict(progress) if progress else None,
            "wall_s": self._wall_s(),
        }
        if self._first:
            self._folder.complete_checkpoint(rounds, digests, meta)
        self._checkpointed = time.perf_counter()

    def _agreed_checkpoint(self) -> Checkpoint | None:
        """The newest that the first rank finds whole: what all workloads share of it, and what this rank's own have."""
        name = (self._folder.newest_checkpoint() or "") if self._first else ""
        name = self._ranks.meet("the last checkpoint", name).words[0]
        if not name:
            return None
        own = {str(number) for number in self._share.numbers}
        return self._folder.load_checkpoint(
            name, lambda key: key.partition(".")[0] in own or not key.partition(".")[0].isdigit()
        )

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return
        self._runtime.restore(checkpoint.tensors)
        self._records = [EpochRecord.from_json(record) for record in checkpoint.meta["records"]]
        progress = checkpoint.meta["progress"]
        self._progress = EpochProgress(**progress).part(self._share.numbers, self._ranks) if progress else None
        self._wall_s_before = checkpoint.meta["wall_s"]

    def _wall_s(self) -> float:
        return self._wall_s_before + time.perf_counter() - self._started

    def _save_best(self) -> None:
        """Before any checkpoint, so that whoever resumes from one finds the best model up to there."""
        if self._best is not None and self._first:
            self._save_model("best", *self._best)
            self._best = None

    def _save_model(self, name: str, record: EpochRecord, state: Mapping[str, torch.Tensor]) -> None:
        about = {"epoch": str(record.epoch), "test_accuracy": str(record.test_accuracy)}
        if record.validation_accuracy is not None:
            about["validation_accuracy"] = str(record.validation_accuracy)
        about["model"] = self._config.model.model_dump_json()
        self._folder.save_model(name, state, about)

    def _finish(self) -> Result:
        model = self._runtime.model_state()
        totals = Totals(
            run=str(self._folder.path),
            workers=self._runtime.workers,
            setup_s=self._setup_s,
            wall_s=self._wall_s(),
            memory_bytes_max=self._runtime.memory_bytes_max(),
        )
        summary = summarise(self._config, self._data, self._records, totals)
        if self._first:
            self._save_model("model", self._records[-1], model)
            self._folder.write_json("summary.json", summary.to_json())
            self._folder.drop_checkpoints()
        self._display.finished(summary)
        return Result(self._folder.path, tuple(self._records), summary)

    def _keep_assignment(self) -> bool:
        """Store the first epoch's clusters; a resumed run keeps those it began with, on whatever machine it goes on.

        Returns whether it had begun before.
        """
        stored = self._folder.read_json("assignment.json")
        if stored is None:
            if self._first:
                self._folder.write_json("assignment.json", self._describe_assignment())
        elif self._clustering is not None:
            clusters = np.array([stored["assignment"][client] for client in self._data.fleet.ids], dtype=np.int64)
            self._clustering = replace(self._clustering, assignment=clusters)
        return stored is not None

    def _describe_assignment(self) -> dict[str, Any]:
        report = self._clustering.report if self._clustering else None
        return {
            "rule": self._config.clustering.rule if self._clustering else None,
            "objective": asdict(report) if report else None,
            "assignment": dict(zip(self._data.fleet.ids, self._assignment(epoch=1).tolist(), strict=True)),
        }

    def _introduce(self, *, begun: bool) -> None:
        fleet, schedule = self._data.fleet, self._config.schedule
        if begun:
            self._display.message(self._from_where())
        self._display.message(
            f"{self._config.data.name}: {fleet.samples:,} samples on {fleet.clients:,} clients, "
            f"{schedule.workloads} workloads x batch {schedule.batch_size}, model {self._config.model.name}, "
            f"on {self._runtime.device}\nrun folder {self._folder.path}"
        )
        self._display.started(self._config.train.epochs, len(self._records))

    def _from_where(self) -> str:
        if self._progress:
            return f"Resuming in epoch {len(self._records) + 1} after {sum(self._progress.rounds_done)} rounds"
        if self._records:
            return f"Resuming after epoch {len(self._records)}"
        return "Starting again from the first epoch: there is no checkpoint yet"


def learning_rate(config: OptimizerConfig, epoch: int, epochs: int) -> float:
    """The rate for one epoch, counted from 1."""
    if epoch <= config.warmup_epochs:
        return config.lr * epoch / (config.warmup_epochs + 1)
    if config.lr_schedule == "constant":
        return config.lr
    after_warmup = (epoch - 1 - config.warmup_epochs) / (epochs - config.warmup_epochs)
    return config.lr * (1 + math.cos(math.pi * after_warmup)) / 2
