"""One cluster's GPSL workload: client forward, server step, client backward. The wire between the two sides is the cut.

Who stands on the client side is one interface, `Clients`: a shared segment for every client of the cluster (exact,
because all replicas receive the same update), one real replica per client (slow, the proof), or clients across a
network. Knows nothing of clusters, schedules or fusion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gcpsl.data.device import DeviceSamples
from gcpsl.flat import FlatSegment
from gcpsl.fleet import IntArray
from gcpsl.sampling import RoundPlan
from gcpsl.seeds import UInt64Array


class Clients(Protocol):
    """The client side of one workload. `segment` is the state that all its clients share between rounds."""

    segment: FlatSegment

    def enrol(self, members: IntArray) -> None:
        """Take these clients into the cluster, and nobody else; all continue from `segment`'s state."""
        ...

    def forward(self, plan: RoundPlan) -> tuple[Tensor, Tensor]:
        """The active clients' activations at the cut, and their labels, in the plan's order."""
        ...

    def backward(self, cut_gradients: Tensor) -> None:
        """Propagate into `segment.gradients` the sum of the active clients' gradients, which is the batch mean's."""
        ...

    def update(self, lr: float) -> None:
        """Every client of the cluster steps on `segment.gradients`, active or not."""
        ...

    def broadcast(self) -> None:
        """Every client takes over `segment`'s state, after fusion or a restart has changed it."""
        ...


class SharedClients:
    """One segment stands for every client of the cluster."""

    def __init__(self, segment: FlatSegment, samples: DeviceSamples) -> None:
        self.segment = segment
        self._samples = samples
        self._activations: Tensor | None = None

    def enrol(self, members: IntArray) -> None:
        """Nobody needs a copy of their own."""

    def forward(self, plan: RoundPlan) -> tuple[Tensor, Tensor]:
        images, labels = drawn(self._samples, plan.samples, plan.bits)
        self._activations = self.segment.module(images)
        return self._activations.detach(), labels

    def backward(self, cut_gradients: Tensor) -> None:
        assert self._activations is not None, "backward follows forward"
        self._activations.backward(cut_gradients)
        self._activations = None

    def update(self, lr: float) -> None:
        self.segment.update(lr)

    def broadcast(self) -> None:
        """Nobody holds a copy."""


class ReplicaClients:
    """A real segment and optimizer per client: each forwards its own samples only, and steps by itself."""

    def __init__(self, make_segment: Callable[[], FlatSegment], samples: DeviceSamples) -> None:
        self.segment = make_segment()
        self._make_segment = make_segment
        self._samples = samples
        self._replicas: dict[int, FlatSegment] = {}
        self._active: list[tuple[FlatSegment, Tensor]] = []

    def enrol(self, members: IntArray) -> None:
        self._replicas = {int(k): self._replicas.get(int(k)) or self._make_segment() for k in members}
        self.broadcast()

    def forward(self, plan: RoundPlan) -> tuple[Tensor, Tensor]:
        stops = plan.counts.cumsum()
        labels = []
        for client, start, stop in zip(plan.clients, stops - plan.counts, stops, strict=True):
            images, own_labels = drawn(self._samples, plan.samples[start:stop], plan.bits[start:stop])
            replica = self._replicas[int(client)]
            self._active.append((replica, replica.module(images)))
            labels.append(own_labels)
        return torch.cat([activations.detach() for _, activations in self._active]), torch.cat(labels)

    def backward(self, cut_gradients: Tensor) -> None:
        parts = cut_gradients.split([len(activations) for _, activations in self._active])
        for (replica, activations), part in zip(self._active, parts, strict=True):
            activations.backward(part)
            self.segment.gradients += replica.gradients
        self._active = []

    def update(self, lr: float) -> None:
        for replica in self._replicas.values():
            replica.gradients.copy_(self.segment.gradients)
            replica.update(lr)
        self.segment.update(lr)

    def broadcast(self) -> None:
        tensors = self.segment.tensors()
        for replica in self._replicas.values():
            replica.restore(tensors)


def drawn(samples: DeviceSamples, indices: IntArray, bits: UInt64Array) -> tuple[Tensor, Tensor]:
    """The augmented images of a plan's entries, and their labels."""
    on_device = torch.from_numpy(indices).to(samples.labels.device)
    bits_on_device = torch.from_numpy(bits.view(np.int64)).to(samples.labels.device)
    return samples.batch(on_device, bits_on_device), samples.labels.index_select(0, on_device)


class Server:
    """The server replica of one slot: the rest of the network, the loss and its own optimizer."""

    def __init__(self, segment: FlatSegment, label_smoothing: float) -> None:
        self.segment = segment
        self._label_smoothing = label_smoothing

    def step(self, activations: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The cut gradients of the batch-mean loss, and that loss; the segment's own gradients are left in it."""
        activations.requires_grad_()
        logits = self.segment.module(activations)
        loss = cross_entropy(logits, labels, label_smoothing=self._label_smoothing)
        loss.backward()
        assert activations.grad is not None
        return activations.grad, loss.detach()

    def update(self, lr: float) -> None:
        self.segment.update(lr)


class Workload:
    """The two sides of one cluster."""

    def __init__(self, clients: Clients, server: Server) -> None:
        self.clients = clients
        self.server = server

    def gradients(self, plan: RoundPlan) -> Tensor:
        """A round up to its updates: both segments hold the batch-mean gradient. Returns the loss."""
        activations, labels = self.clients.forward(plan)
        cut_gradients, loss = self.server.step(activations, labels)
        self.clients.backward(cut_gradients)
        return loss

    def update(self, lr: float) -> None:
        self.server.update(lr)
        self.clients.update(lr)

    def round(self, plan: RoundPlan, lr: float) -> Tensor:
        """One GPSL update of the cluster. Returns the loss of its batch."""
        loss = self.gradients(plan)
        self.update(lr)
        return loss

    def segments(self) -> tuple[FlatSegment, FlatSegment]:
        """The client side's state and the server's."""
        return self.clients.segment, self.server.segment
