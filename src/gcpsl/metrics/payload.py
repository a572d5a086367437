"""The paper's logical payload, by both its formulas: tensor bytes that endpoints handle in an epoch.

Decimal units, float32 tensors. Not network traffic: no protocol, no compression, and the per-step
synchronisation of the synchronous baselines is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gcpsl.metrics.participation import Participation

if TYPE_CHECKING:
    from gcpsl.models.sizes import SegmentSizes

FLOAT_BYTES = 4
GB = 1e9


@dataclass(frozen=True)
class PayloadSizes:
    """The sizes that the formulas need: a, p, P and b of one split model."""

    activation_bytes: int
    """a: one sample's activations at the cut; its cut gradient is as large."""
    client_bytes: int
    """p: the client segment's parameters."""
    model_bytes: int
    """P: both segments' parameters."""
    norm_state_bytes: int
    """b: the server's normalisation state."""

    @classmethod
    def of(cls, sizes: SegmentSizes) -> PayloadSizes:
        return cls(
            activation_bytes=sizes.activation_bytes,
            client_bytes=FLOAT_BYTES * sizes.client_parameters,
            model_bytes=FLOAT_BYTES * (sizes.client_parameters + sizes.server_parameters),
            norm_state_bytes=sizes.norm_state_bytes,
        )


@dataclass(frozen=True)
class Payload:
    """One epoch's bytes: as the paper's simulator counts, and as its real execution does."""

    simulator_bytes: float
    """Both endpoints of every transfer; every client sends and receives the segment's update each round."""
    real_bytes: float
    """Each transfer once; active clients send gradients, every client receives the update."""

    def per_phase_gb(self, rounds_max: int) -> float:
        """The simulator's decimal GB per phase, a phase being one round of the longest workload."""
        return self.simulator_bytes / rounds_max / GB


def fusion_bytes(sizes: PayloadSizes, workloads: int, clients: int) -> int:
    """F, one fusion: slots send and receive a replica, clients receive their segment; 0 for N = 1."""
    if workloads == 1:
        return 0
    return 2 * workloads * (sizes.model_bytes + sizes.norm_state_bytes) + clients * sizes.client_bytes


def fusions_per_epoch(synchronise: str | int, rounds_max: int) -> int:
    """How often an epoch fuses; `step` and `never` have no fusion that the paper's payload counts."""
    if isinstance(synchronise, int):
        return -(-rounds_max // synchronise)
    return 1 if synchronise == "epoch" else 0


def epoch_payload(
    sizes: PayloadSizes,
    samples: int,
    participation: Participation,
    *,
    workloads: int,
    fusions: int,
    clients: int | None = None,
) -> Payload:
    """Both payloads of an epoch with this participation (observed or expected) and so many fusions.

    `clients` is K, needed only where every workload has all clients, so that the participation counts each N times.
    """
    active, client_rounds = participation.active, participation.client_rounds
    fused = fusions * fusion_bytes(sizes, workloads, clients or participation.clients)
    activations = sizes.activation_bytes * samples
    return Payload(
        simulator_bytes=4 * activations + 4 * sizes.client_bytes * client_rounds + fused,
        real_bytes=2 * activations + sizes.client_bytes * (active + client_rounds) + fused,
    )
