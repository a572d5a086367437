"""What a round does on the device to N stacked replicas, from the epoch's plan to the optimizer, as work to capture.

A counter per replica says which round of the plan comes next, so the same work does every round. Models that
`kernels.layers` can read are computed all replicas at once, any other by its modules, one replica at a time. Knows
nothing of clocks, graphs or barriers.

Tensor names end in their dimensions: n replicas, t rounds, b samples of a batch.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gcpsl.config import Config
from gcpsl.data.device import DeviceSamples
from gcpsl.flat import FlatSegment, Stack
from gcpsl.kernels import Augmentation, Plan, Update, operations_for
from gcpsl.kernels.layers import NotStackable, first_of, read
from gcpsl.kernels.network import Network, Rows
from gcpsl.runtimes.numerics import DTYPES, Precision
from gcpsl.schedule import EpochSchedule

LOSS_SCALE = 2.0**16
WHOLE = slice(None)
STEADY_ROUNDS = 2000  # without an overflow, after which the loss scale doubles


@dataclass(frozen=True)
class Lane:
    """Replicas that take their rounds together: rows of every buffer, from `first` on."""

    first: int
    rows: Rows
    plan: Plan
    counters: Tensor
    optimizer: dict[str, Tensor]
    valid_n: Tensor
    losses_n: Tensor
    scale_n: Tensor
    steady_n: Tensor

    @property
    def replicas(self) -> range:
        return range(self.first, self.first + len(self.valid_n))


class Lanes:
    """The replicas' buffers, and the work of a round on them."""

    def __init__(
        self,
        config: Config,
        segments: Sequence[tuple[FlatSegment, FlatSegment]],
        train: DeviceSamples,
        precision: Precision,
        *,
        averaged_elsewhere: bool,
    ) -> None:
        self._config, self._segments, self._train, self._precision = config, segments, train, precision
        self._averaged_elsewhere = averaged_elsewhere
        self.device = train.labels.device
        self.stack = Stack(segments, config.optimizer)
        self._ops = operations_for(self.device)
        n, dtype = len(segments), DTYPES[precision]
        parameters = self.stack.parameters
        self._compute = parameters if dtype == parameters.dtype else parameters.to(dtype)
        self._lr = torch.zeros((), device=self.device)
        self._scale_n = torch.full((n,), LOSS_SCALE if precision == "fp16" else 1.0, device=self.device)
        self._steady_n, self._losses_n = torch.zeros(2, n, device=self.device)
        self._valid_n = torch.zeros(n, dtype=torch.int64, device=self.device)
        self._plan = self._empty_plan()
        self._uploaded: EpochSchedule | None = None
        self.network, self.why_modules = self._stacked()
        self.groups = self._grouped()
        self.everyone = self._lane(0, n)
        averaged = config.schedule.synchronise == "step"
        # replicas by their modules, or on other ranks too, step together only once all have their gradients
        self.joint = averaged and (len(self.groups[0]) > 1 or averaged_elsewhere)
        plain = config.optimizer.kind == "sgd" and precision != "fp16" and not averaged
        self._server_ahead = self.network is not None and plain

    def _empty_plan(self) -> Plan:
        """Room for any epoch; a batch is read from its start on, however few of its entries count."""
        n, batch = len(self._segments), self._config.schedule.batch_size
        entries, rounds = len(self._train) + batch, -(-len(self._train) // batch) + 1

        def whole(*size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int64, device=self.device)

        losses_nt = torch.zeros(n, rounds, device=self.device)
        return Plan(whole(entries), whole(entries), whole(n, rounds), whole(n, rounds), losses_nt, whole(n), whole(n))

    def _stacked(self) -> tuple[Network | None, str]:
        """The stacked network, or why there is none."""
        if not self._config.runtime.channels_last:
            return None, "runtime.channels_last is false"
        if self.device.type == "cuda" and importlib.util.find_spec("triton") is None:
            return None, "Triton is not installed"
        _, height, width, channels = self._train.images_nhwc.shape
        try:
            steps = read([segment.module for segment in self._segments[0]], (channels, height, width))
        except NotStackable as reason:
            return None, str(reason)
        self._cut = first_of(self._segments[0][1].module, steps)
        return Network(steps, self.stack.offsets(), self._ops, tf32=self._precision == "tf32"), ""

    def _grouped(self) -> list[list[Lane]]:
        """Lanes of one group run side by side, groups one after another."""
        n = len(self._segments)
        if self._config.schedule.execution == "sequential":
            return [[self._lane(row, row + 1)] for row in range(n)]
        if self.network is not None:
            return [[self._lane(0, n)]]
        return [[self._lane(row, row + 1) for row in range(n)]]

    def _lane(self, first: int, stop: int) -> Lane:
        stack, plan, part = self.stack, self._plan, slice(first, stop)
        rows = Rows(stack.parameters[part], stack.gradients[part], stack.norm_state[part], self._compute[part])
        by_row = (plan.starts_nt, plan.sizes_nt, plan.losses_nt, plan.turn_n, plan.until_n)
        own = Plan(plan.samples, plan.bits, *(tensor[part] for tensor in by_row))
        optimizer = {name: tensor[part] for name, tensor in stack.optimizer_state.items()}
        each = (tensor[part] for tensor in (self._valid_n, self._losses_n, self._scale_n, self._steady_n))
        return Lane(first, rows, own, stack.counters[part], optimizer, *each)

    def states(self) -> list[Tensor]:
        """Everything that a round changes and the next one reads."""
        stack = self.stack
        own = [stack.parameters, stack.norm_state, stack.counters, self._scale_n, self._steady_n]
        return own + list(stack.optimizer_state.values())

    def scaling(self) -> dict[str, Tensor]:
        """The replicas' loss scales, as a checkpoint needs them."""
        return {"loss_scale": self._scale_n, "loss_scale_rounds": self._steady_n} if self._precision == "fp16" else {}

    def adopt_optimizers(self) -> None:
        """Go on from what the segments were restored to."""
        self.stack.adopt_optimizers()

    @property
    def replica_bytes(self) -> int:
        """What one replica's buffers take, without activations."""
        rows = [*self.states(), self.stack.gradients, *([self._compute] if self._precision in ("bf16", "fp16") else [])]
        return sum(row.nbytes for row in rows) // len(self._segments)

    def upload(self, schedule: EpochSchedule) -> None:
        """Put the epoch's plans on the device."""
        if self._uploaded is schedule:
            return
        plans, target = schedule.plans, self._plan
        samples = np.concatenate([plan.samples for plan in plans])
        target.samples[: len(samples)] = torch.from_numpy(samples)
        target.bits[: len(samples)] = torch.from_numpy(np.concatenate([plan.bits for plan in plans]).view(np.int64))
        starts_nt, sizes_nt = np.zeros((2, *target.starts_nt.shape), dtype=np.int64)
        offset = 0
        for n, plan in enumerate(plans):
            starts_nt[n, : plan.rounds] = offset + plan.bounds[:-1]
            sizes_nt[n, : plan.rounds] = plan.sizes
            offset += len(plan.samples)
        target.starts_nt.copy_(torch.from_numpy(starts_nt))
        target.sizes_nt.copy_(torch.from_numpy(sizes_nt))
        self._uploaded = schedule

    def turn_to(self, turns: Sequence[int], stops: Sequence[int], lr: float) -> None:
        """The next rounds are these, up to those; whatever was captured before took none."""
        self._plan.turn_n.copy_(torch.tensor(turns))
        self._plan.until_n.copy_(torch.tensor(stops))
        self._lr.fill_(lr)
        self._valid_n.zero_()
        self._compute.copy_(self.stack.parameters)

    def losses(self) -> list[list[float]]:
        """Each replica's losses by round, once the device has done what it was given."""
        losses: list[list[float]] = self._plan.losses_nt.tolist()
        return losses

    def round(self, lane: Lane, size: int) -> None:
        """The next round of every replica of the lane. A server that can step while its clients go backward does."""
        if not self._server_ahead:
            self.gradients(lane, size)
            self.update(lane)
            return
        _, server, end = self.stack.starts
        step_server = partial(self._step, lane, lane.valid_n, lane.scale_n, slice(server, end))
        self._gradients(lane, size, {self._cut: step_server})
        self.update(lane, slice(0, server))

    def gradients(self, lane: Lane, size: int) -> None:
        """Take the next round up to its gradients. Its batch has room for `size` samples; some may not count."""
        self._gradients(lane, size, {})

    def _gradients(self, lane: Lane, size: int, ahead: Mapping[int, Callable[[], None]]) -> None:
        samples_nb, bits_nb, labels_nb, valid_n = self._ops.take(lane.plan, self._train.labels, size)
        lane.valid_n.copy_(valid_n)
        if self.network is None:
            lane.losses_n.copy_(
                self._module_gradients(lane, self._train.batch(samples_nb[0], bits_nb[0]), labels_nb[0])
            )
            return
        smoothing = self._config.train.label_smoothing
        images = self.network.images(_augmentation(self._train), samples_nb, bits_nb, valid_n, lane.rows)
        losses_n = self.network.gradients(images, labels_nb, valid_n, lane.rows, smoothing, lane.scale_n, ahead)
        lane.losses_n.copy_(losses_n)
        lane.counters.add_((valid_n > 0)[:, None])

    def _module_gradients(self, lane: Lane, images: Tensor, labels_b: Tensor) -> Tensor:
        """One replica's, by autograd through its own modules."""
        client, server = self._segments[lane.first]
        lane.rows.gradients.zero_()
        with self._autocast():
            activations = client.module(images)
            cut = activations.detach().requires_grad_()
            scores = server.module(cut)
        loss = cross_entropy(scores.float(), labels_b, label_smoothing=self._config.train.label_smoothing)
        (loss * lane.scale_n[0]).backward()
        activations.backward(cut.grad)
        return loss.detach()

    def _autocast(self) -> torch.autocast:
        dtype = DTYPES[self._precision]
        reduced = dtype != torch.float32
        # without its cache, whose entries a captured graph would go on reading after they are gone
        return torch.autocast(self.device.type, dtype if reduced else torch.bfloat16, reduced, cache_enabled=False)

    @torch.no_grad()
    def update(self, lane: Lane, part: slice = WHOLE) -> None:
        """Step every replica that took the round, or all of them on their mean, and turn to the next round."""
        active_n, scale_n = lane.valid_n, lane.scale_n
        if self._config.schedule.synchronise == "step":
            active_n = torch.ones_like(lane.valid_n) if self._averaged_elsewhere else _average(lane)
        if self._precision == "fp16":
            scale_n = scale_n.clone()
            active_n = _rescale(lane, active_n)
        self._step(lane, active_n, scale_n, part)
        self._ops.advance(lane.plan, lane.losses_n, lane.valid_n)
        lane.valid_n.zero_()

    def _step(self, lane: Lane, active_n: Tensor, scale_n: Tensor, part: slice) -> None:
        """The optimizer's step on this part of the active replicas' rows."""
        settings, rows = self._config.optimizer, lane.rows
        compute = None if rows.compute.dtype == rows.parameters.dtype else rows.compute[:, part]
        update = Update(rows.parameters[:, part], rows.gradients[:, part], compute, self._lr, active_n, scale_n)
        state = {name: t if name == "step" else t[:, part] for name, t in lane.optimizer.items()}
        decay = settings.weight_decay
        if settings.kind == "adamw":
            self._ops.adamw(update, state["exp_avg"], state["exp_avg_sq"], state["step"], weight_decay=decay)
        else:
            momenta, nesterov = state.get("momentum_buffer"), settings.nesterov
            self._ops.sgd(update, momenta, momentum=settings.momentum, nesterov=nesterov, weight_decay=decay)

    def compiled_ahead(self, samples: Sequence[DeviceSamples], size: int) -> None:
        """Compile what the stacked network needs for rounds and for evaluation, all at once."""
        at_once = self._config.train.eval_batch_size
        with self._ops.compiled_ahead():
            self.round(self.groups[0][0], size)
            for each in samples:
                for count in {min(at_once, len(each)), len(each) % at_once} - {0}:
                    self.scores(each, torch.zeros(count, dtype=torch.int64, device=self.device))

    def scores(self, samples: DeviceSamples, indices_b: Tensor) -> Tensor:
        """What the first replica, in eval mode, says of these samples."""
        if self.network is None:
            client, server = self._segments[0]
            with self._autocast():
                scores: Tensor = server.module(client.module(samples.batch(indices_b))).float()
                return scores
        own = self.groups[0][0].rows
        compute = own.parameters[:1].to(own.compute.dtype)
        rows = Rows(own.parameters[:1], own.gradients[:1], own.norm_state[:1], compute)
        valid_n = torch.tensor([len(indices_b)], device=self.device)
        indices_nb = indices_b[None]
        images = self.network.images(_augmentation(samples), indices_nb, torch.zeros_like(indices_nb), valid_n, rows)
        return self.network.scores(images, rows, valid_n)[0]


def _augmentation(samples: DeviceSamples) -> Augmentation:
    factor, offset = samples.scaling_c
    return Augmentation(samples.images_nhwc, samples.labels, factor, offset, samples.crop_padding, samples.flip)


def _average(lane: Lane) -> Tensor:
    """Give every replica the mean gradient, weighted by batch size. All are active then."""
    weights_n = lane.valid_n / lane.valid_n.sum() / lane.scale_n
    gradients = torch.where(lane.valid_n[:, None] > 0, lane.rows.gradients, 0.0)
    lane.rows.gradients.copy_((weights_n[:, None] * gradients).sum(0) * lane.scale_n[:, None])
    return torch.ones_like(lane.valid_n)


def _rescale(lane: Lane, active_n: Tensor) -> Tensor:
    """Leave out replicas whose scaled gradients overflowed, and move the loss scales for the next round."""
    finite_n = lane.rows.gradients.isfinite().all(1)
    took_n = active_n > 0
    steady_n = torch.where(took_n, (lane.steady_n + 1) * finite_n, lane.steady_n)
    grown_n = torch.where(steady_n >= STEADY_ROUNDS, 2.0, 1.0)
    lane.scale_n.mul_(torch.where(took_n & ~finite_n, 0.5, grown_n))
    lane.steady_n.copy_(steady_n * (steady_n < STEADY_ROUNDS))
    return active_n * finite_n
