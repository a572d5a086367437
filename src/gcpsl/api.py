"""The Python interface: the command line's verbs as functions, with your own objects where you have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcpsl import config as configs
from gcpsl.config import ClusteringConfig, Config
from gcpsl.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from gcpsl.clustering import Rule
    from gcpsl.data import Dataset
    from gcpsl.display import Display
    from gcpsl.planner import Plan
    from gcpsl.training import Result


def train(
    config: Config | str | Path | dict[str, Any] | None = None,
    *overrides: str,
    dataset: Dataset | None = None,
    model: Callable[[tuple[int, int, int], int], nn.Module] | None = None,
    rule: Rule | None = None,
    display: Display | None = None,
) -> Result:
    """Train one run and return what it measured; its folder is `result.path`.

    `config` is a `Config`, a TOML file, a preset's name or nested dictionaries; overrides are `"schedule.workloads=8"`.
    `dataset`, `model` (called with the input shape and the number of classes) and `rule` stand in for what the config
    names; give them to `resume` again.
    """
    from gcpsl import training

    return training.train(_config(config, overrides), training.Pieces(dataset, model, rule), display)


def resume(
    path: str | Path,
    *moved: str,
    dataset: Dataset | None = None,
    model: Callable[[tuple[int, int, int], int], nn.Module] | None = None,
    rule: Rule | None = None,
    display: Display | None = None,
) -> Result:
    """Continue an interrupted run from its folder; it ends as if it had never stopped.

    Where its data has moved, say so: `"data.root=..."` or `"partition.file=..."`.
    """
    from gcpsl import training

    return training.resume(Path(path), training.Pieces(dataset, model, rule), display, moved)


def plan(
    config: Config | str | Path | dict[str, Any] | None = None,
    *overrides: str,
    fleet: str | Path | None = None,
    workloads: Sequence[int] | None = None,
    rules: Sequence[ClusteringConfig | Rule | str] | None = None,
) -> Plan:
    """What `gcpsl plan` prints, as data. `fleet` is a CSV of `client,count[,class counts...]`.

    A rule is a built-in one's name, an import path, a `ClusteringConfig`, or a function of your own.
    """
    from gcpsl.planning import plan_settings

    return plan_settings(_config(config, overrides), Path(fleet) if fleet else None, workloads, rules)


def _config(config: Config | str | Path | dict[str, Any] | None, overrides: Sequence[str]) -> Config:
    if isinstance(config, Config):
        return configs.override(config, *overrides)
    if isinstance(config, dict):
        return configs.override(configs.from_mapping(config), *overrides)
    if config is not None and not isinstance(config, str | Path):
        raise ConfigError(f"{config!r} is no config; give a Config, a file, a preset's name, dictionaries or None")
    return configs.load(config, overrides)
