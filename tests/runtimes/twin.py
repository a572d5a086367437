"""The slow, obvious GCPSL that every runtime is pinned to: whole networks, plain optimizers, averaged state dicts."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcpsl.config import Config
from gcpsl.data import FederatedData
from gcpsl.data.dataset import ImageArray
from gcpsl.models import SplitModel
from gcpsl.sampling import EpochPlan
from gcpsl.schedule import EpochSchedule


class Twin:
    """One unsplit network per workload; `drifts` are those before each fusion."""

    def __init__(self, config: Config, data: FederatedData, model: SplitModel) -> None:
        self.config, self.data = config, data
        self.networks = [copy.deepcopy(model.whole()) for _ in range(config.schedule.workloads)]
        self.optimizers = [self._optimizer(network) for network in self.networks]
        self.drifts: list[float] = []

    def _optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        settings = self.config.optimizer
        if settings.kind == "adamw":
            return torch.optim.AdamW(network.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
        return torch.optim.SGD(
            network.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            weight_decay=settings.weight_decay,
        )

    def run_epoch(self, schedule: EpochSchedule) -> None:
        for phase in schedule.phases:
            for t in range(phase.start, phase.stop):
                active = [n for n, plan in enumerate(schedule.plans) if t < plan.rounds]
                for n in active:
                    self._gradients(n, schedule.plans[n], t)
                if schedule.lockstep:
                    self._average_gradients({n: int(schedule.plans[n].sizes[t]) for n in active})
                for n in range(len(self.networks)) if schedule.lockstep else active:
                    self.optimizers[n].step()
            if phase.fuse:
                self.drifts.append(self._drift(schedule.weights))
                fused = self.mean(schedule.weights)
                for network in self.networks:
                    network.load_state_dict(fused)

    def _gradients(self, n: int, plan: EpochPlan, t: int) -> None:
        rows, every_bits = (values[plan.bounds[t] : plan.bounds[t + 1]] for values in (plan.samples, plan.bits))
        train = self.data.train
        scale = 1 / 255 if train.images.dtype == np.uint8 else 1.0
        images = (
            np.stack(
                [self._augmented(train.images[row], int(bits)) for row, bits in zip(rows, every_bits, strict=True)]
            )
            * scale
        )
        images = (images - self.data.mean[:, None, None]) / self.data.std[:, None, None]
        logits = self.networks[n](torch.from_numpy(images).float())
        loss = nn.CrossEntropyLoss(label_smoothing=self.config.train.label_smoothing)
        self.optimizers[n].zero_grad()
        loss(logits, torch.from_numpy(train.labels[rows])).backward()

    def _augmented(self, image: ImageArray, bits: int) -> NDArray[np.float64]:
        """Cropped at an offset from the lowest 31 bits down and the next 31 across, then flipped by the highest."""
        padding, (_, height, width) = self.config.data.crop_padding, image.shape
        padded = np.pad(image.astype(np.float64), ((0, 0), (padding, padding), (padding, padding)))
        down, across = (bits % 2**31) % (2 * padding + 1), (bits // 2**31 % 2**31) % (2 * padding + 1)
        crop = padded[:, down : down + height, across : across + width]
        return crop[:, :, ::-1] if self.config.data.flip and bits >= 2**63 else crop

    def _average_gradients(self, sizes: dict[int, int]) -> None:
        for parameters in zip(*(network.parameters() for network in self.networks), strict=True):
            total = sum(sizes.values())
            grads = [parameters[n].grad for n in sizes]
            mean = sum(g * (size / total) for g, size in zip(grads, sizes.values(), strict=True) if g is not None)
            for parameter in parameters:
                parameter.grad = mean.clone() if isinstance(mean, Tensor) else None

    def _drift(self, weights: tuple[float, ...]) -> float:
        """The weighted RMS distance of all parameters from their mean, relative to the mean's norm."""
        mean = self.mean(weights)
        spread = norm = 0.0
        for name, _ in self.networks[0].named_parameters():
            for weight, network in zip(weights, self.networks, strict=True):
                spread += weight * float((network.get_parameter(name).detach().double() - mean[name]).square().sum())
            norm += float(mean[name].double().square().sum())
        return math.sqrt(spread / norm)

    def mean(self, weights: tuple[float, ...]) -> dict[str, Tensor]:
        states = [network.state_dict() for network in self.networks]
        fused = {}
        for name, first in states[0].items():
            total = sum(w * state[name].double() for w, state in zip(weights, states, strict=True))
            assert isinstance(total, Tensor)
            fused[name] = total.to(first.dtype) if first.is_floating_point() else total.round().to(first.dtype)
        return fused
