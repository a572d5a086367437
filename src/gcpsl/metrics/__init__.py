"""What the paper measures: pure functions over plans, counts and histories. Torch-free; knows no runtime."""

from gcpsl.metrics.deviation import batch_deviation
from gcpsl.metrics.expected import expected_deviation, expected_participation
from gcpsl.metrics.participation import InactivityBounds, Participation, inactivity_bounds, observed
from gcpsl.metrics.payload import Payload, PayloadSizes, epoch_payload, fusion_bytes, fusions_per_epoch
from gcpsl.metrics.schedule import Schedule
from gcpsl.metrics.slots import SlotTimes, slot_times
from gcpsl.metrics.targets import Crossing, EpochMark, crossing

__all__ = [
    "Crossing",
    "EpochMark",
    "InactivityBounds",
    "Participation",
    "Payload",
    "PayloadSizes",
    "Schedule",
    "SlotTimes",
    "batch_deviation",
    "crossing",
    "epoch_payload",
    "expected_deviation",
    "expected_participation",
    "fusion_bytes",
    "fusions_per_epoch",
    "inactivity_bounds",
    "observed",
    "slot_times",
]
