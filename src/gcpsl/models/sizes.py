"""How large a split model's segments are: the planner's view of a model. Imports no torch.

A shipped table holds the zoo's stage cuts on the built-in data's shapes. Anything else is measured, which
loads torch. `python -m gcpsl.models.sizes` writes the table anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from typing import cast

from gcpsl.config import ModelConfig
from gcpsl.models.catalogue import ZOO


@dataclass(frozen=True)
class SegmentSizes:
    """Sizes that depend on neither the batch, the fleet nor (but for some bytes) the groups; in float32."""

    client_parameters: int
    server_parameters: int
    norm_state_bytes: int
    """The server's BatchNorm state: running means and variances, and int64 counters."""
    activation_bytes: int
    """One sample's activations at the cut."""
    saved_bytes_per_sample: int
    """What autograd keeps of one sample in a training step, both segments, without parameters."""


@dataclass(frozen=True)
class Key:
    """What a row of the table is about."""

    name: str
    cut: str
    client_skips: bool
    input_shape: tuple[int, int, int]
    classes: int


def segment_sizes(config: ModelConfig, input_shape: tuple[int, int, int], classes: int) -> SegmentSizes:
    """The sizes of what `build` makes of the same arguments; raises as it does where that is impossible."""
    if config.name in ZOO:
        cut = config.cut or ZOO[config.name].cut
        row = table().get(Key(config.name, cut, config.client_skips, input_shape, classes))
        if row is not None:
            return row
    measured = import_module("gcpsl.models.measure").measure_sizes(config, input_shape, classes)
    return cast(SegmentSizes, measured)


@cache
def table() -> dict[Key, SegmentSizes]:
    """The shipped sizes."""
    rows = json.loads((resources.files("gcpsl.models") / "sizes.json").read_text(encoding="utf-8"))
    return {
        Key(name, cut, skips, (shape[0], shape[1], shape[2]), classes): SegmentSizes(*sizes)
        for name, cut, skips, shape, classes, *sizes in rows
    }


if __name__ == "__main__":
    import_module("gcpsl.models.measure").write_table()
