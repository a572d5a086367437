"""From settings, or a fleet's CSV, to a plan: what `gcpsl plan` and `gcpsl.plan` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gcpsl.clustering import Rule
from gcpsl.config import ClusteringConfig, Config
from gcpsl.data import federate
from gcpsl.fleet import Fleet
from gcpsl.models import SegmentSizes, segment_sizes
from gcpsl.planner import Plan, fleet_from_csv, plan_config

# of the built-in data sets, so that a fleet's file is enough to plan for them
KNOWN_SHAPES = {
    "digits": ((1, 8, 8), 10),
    "fashion-mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
}


def plan_settings(
    config: Config,
    fleet_file: Path | None = None,
    workloads: Sequence[int] | None = None,
    rules: Sequence[ClusteringConfig | Rule | str] | None = None,
) -> Plan:
    """The plan of a config's own clients, or of those in a CSV; payload and memory are the config's model's."""
    if fleet_file is not None:
        fleet = fleet_from_csv(fleet_file)
        return plan_config(config, fleet, _known_sizes(config, fleet), workloads=workloads, rules=rules)
    data = federate(config)
    sizes = segment_sizes(config.model, data.input_shape, data.classes)
    return plan_config(config, data.fleet, sizes, workloads=workloads, rules=rules)


def _known_sizes(config: Config, fleet: Fleet) -> SegmentSizes | None:
    """The model's sizes on the config's data set, whose own number of classes yields to the file's."""
    if config.data.name not in KNOWN_SHAPES:
        return None
    shape, classes = KNOWN_SHAPES[config.data.name]
    return segment_sizes(config.model, shape, classes if fleet.histograms is None else fleet.histograms.shape[1])
