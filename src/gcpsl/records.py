"""What a run writes about itself: one record per epoch, and a summary at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from gcpsl.metrics import Crossing


@dataclass(frozen=True)
class EpochRecord:
    """One epoch, measured after its last barrier on the fused model. Shares and speed-ups are fractions, accuracies %.

    Participation and inactivity stand in both of the paper's countings: over the cluster-rounds that `ran`, and over
    all clients in the `system`'s rounds, where a client whose cluster waits at the barrier is inactive.
    """

    epoch: int
    lr: float
    loss: float
    validation_accuracy: float | None
    validation_loss: float | None
    test_accuracy: float
    test_loss: float
    rounds: tuple[int, ...]
    schedule_rounds: int
    participation_ran: float
    inactivity_ran: float
    inactivity_bound_clusters: tuple[float, ...]
    participation_system: float
    inactivity_system: float
    inactivity_bound_system: float
    model_update_participation: float
    local_compute_inactivity: float
    active_client_rounds: int
    client_rounds: int
    batch_deviation: float
    speedup_ideal: float
    efficiency_ideal: float
    speedup_real: float
    payload_simulator_bytes: float
    payload_real_bytes: float
    drift: tuple[float, ...]
    busy_s: tuple[float, ...]
    local_s: float
    fusion_s: float
    validation_s: float
    test_s: float
    wait_s: tuple[float, ...] = ()

    @property
    def epoch_s(self) -> float:
        """What the paper's timer counts: rounds, fusion and validation."""
        return self.local_s + self.fusion_s + self.validation_s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in value.items()}
        return cls(**plain)


@dataclass(frozen=True)
class TargetResult:
    """An accuracy target in %, and where the run first reached it; none of the rest where it never did."""

    target: float
    epoch: int | None = None
    rounds: int | None = None
    time_s: float | None = None
    worker_minutes: float | None = None
    payload_simulator_bytes: float | None = None
    payload_real_bytes: float | None = None

    @classmethod
    def of(cls, target: float, simulator: Crossing | None, real: Crossing | None) -> Self:
        if simulator is None or real is None:
            return cls(target)
        return cls(
            target,
            simulator.epoch,
            simulator.rounds,
            simulator.time_s,
            simulator.worker_minutes,
            simulator.payload_bytes,
            real.payload_bytes,
        )


@dataclass(frozen=True)
class Summary:
    """A finished run in a page."""

    run: str
    epochs: int
    clients: int
    workloads: int
    samples: int
    test_accuracy: float
    validation_accuracy: float | None
    best_epoch: int | None
    best_validation_accuracy: float | None
    best_test_accuracy: float | None
    participation_ran: float
    participation_system: float
    participation_bound: float
    batch_deviation: float
    speedup_ideal: float
    speedup_real: float
    efficiency_ideal: float
    payload_simulator_bytes: float
    payload_real_bytes: float
    training_s: float
    setup_s: float
    wall_s: float
    rounds_per_s: float
    samples_per_s: float
    memory_bytes_max: int
    target_split: str
    targets: tuple[TargetResult, ...] = field(default=())
    workers: int = 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        targets = tuple(TargetResult(**target) for target in value["targets"])
        return cls(**{**value, "targets": targets})
