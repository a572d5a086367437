"""The slow, obvious GCPSL that every runtime is pinned to: whole networks, plain optimizers, averaged state dicts."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from gcpsl.config import Config
from gcpsl.data import FederatedData
from gcpsl.models import SplitModel
from gcpsl.sampling import EpochPlan
from gcpsl.schedule import EpochSchedule


class Twin:
    """One unsplit network per workload. Augmentation is not modelled, so tests switch it off."""

    def __init__(self, config: Config, data: FederatedData, model: SplitModel) -> None:
        self.config, self.data = config, data
        self.networks = [copy.deepcopy(model.whole()) for _ in range(config.schedule.workloads)]
        self.optimizers = [self._optimizer(network) for network in self.networks]

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
                fused = self.mean(schedule.weights)
                for network in self.networks:
                    network.load_state_dict(fused)

    def _gradients(self, n: int, plan: EpochPlan, t: int) -> None:
        rows = plan.samples[plan.bounds[t] : plan.bounds[t + 1]]
        train = self.data.train
        scale = 1 / 255 if train.images.dtype == np.uint8 else 1.0
        images = train.images[rows].astype(np.float64) * scale
        images = (images - self.data.mean[:, None, None]) / self.data.std[:, None, None]
        logits = self.networks[n](torch.from_numpy(images).float())
        loss = nn.CrossEntropyLoss(label_smoothing=self.config.train.label_smoothing)
        self.optimizers[n].zero_grad()
        loss(logits, torch.from_numpy(train.labels[rows])).backward()

    def _average_gradients(self, sizes: dict[int, int]) -> None:
        for parameters in zip(*(network.parameters() for network in self.networks), strict=True):
            total = sum(sizes.values())
            grads = [parameters[n].grad for n in sizes]
            mean = sum(g * (size / total) for g, size in zip(grads, sizes.values(), strict=True) if g is not None)
            for parameter in parameters:
                parameter.grad = mean.clone() if isinstance(mean, Tensor) else None

    def mean(self, weights: tuple[float, ...]) -> dict[str, Tensor]:
        states = [network.state_dict() for network in self.networks]
        fused = {}
        for name, first in states[0].items():
            total = sum(w * state[name].double() for w, state in zip(weights, states, strict=True))
            assert isinstance(total, Tensor)
            fused[name] = total.to(first.dtype) if first.is_floating_point() else total.round().to(first.dtype)
        return fused
