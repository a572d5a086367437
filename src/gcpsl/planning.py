"""From settings, or a fleet's CSV, to a plan: what `gcpsl plan` and `gcpsl.plan` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gcpsl.config import ClusteringConfig, Config
from gcpsl.data import federate
from gcpsl.models import segment_sizes
from gcpsl.planner import Plan, fleet_from_csv, plan_config


def plan_settings(
    config: Config,
    fleet_file: Path | None = None,
    workloads: Sequence[int] | None = None,
    rules: Sequence[ClusteringConfig | str] | None = None,
) -> Plan:
    """The plan of a config's own data and model; with a CSV there is no model input to size, hence no payload."""
    if fleet_file is not None:
        return plan_config(config, fleet_from_csv(fleet_file), None, workloads=workloads, rules=rules)
    data = federate(config)
    sizes = segment_sizes(config.model, data.input_shape, data.classes)
    return plan_config(config, data.fleet, sizes, workloads=workloads, rules=rules)
