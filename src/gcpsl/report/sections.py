"""A report's sections: the studies that have runs, and one for the runs that belong to none."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.report.collect import Collected, Group
from gcpsl.studies import Finished, Row, Study

OTHERS = "other-runs"
UNNAMED = ("seed", "run.", "data.root", "runtime.timeout_s", "runtime.restarts")
"""Settings that make no other row, so none is called after them."""
LABEL_CHARS_MAX = 64
MEASURES = ("accuracy", "best_val_accuracy", "participation", "inactivity", "batch_deviation")


@dataclass(frozen=True)
class Line:
    """A row of a study, with the runs that fill it."""

    row: Row
    group: Group

    @property
    def finished(self) -> tuple[Finished, ...]:
        return tuple(run.under(self.row.config) for run in self.group.runs)


@dataclass(frozen=True)
class Section:
    """A study with the rows that have runs, and the names of those that have none."""

    study: Study
    lines: tuple[Line, ...]
    missing: tuple[str, ...] = ()
    compared: bool = False
    """Whether the paper's values stand beside."""

    def line(self, row: str) -> Line | None:
        return next((line for line in self.lines if line.row.name == row), None)

    def named(self, *rows: str) -> tuple[Line, ...]:
        """Those of these rows that have runs, in this order."""
        return tuple(line for line in map(self.line, rows) if line is not None)


def sections(studies: Iterable[Study], runs: Collected, *, compared: Collection[str]) -> tuple[Section, ...]:
    """A section for every study with at least one run, then the others; `compared` are set beside the paper's."""
    made = [_section(study, runs, compared=study.name in compared) for study in studies]
    used = {line.group.key for section in made for line in section.lines}
    rest = [group for group in runs.groups if group.key not in used]
    others = (_others(rest),) if rest else ()
    return (*(section for section in made if section.lines), *others)


def _section(study: Study, runs: Collected, *, compared: bool) -> Section:
    found = {row.name: runs.of(row.config) for row in study.rows}
    lines = tuple(Line(row, group) for row in study.rows if (group := found[row.name]) is not None)
    missing = tuple(row.name for row in study.rows if row.default and found[row.name] is None)
    return Section(study, lines, missing, compared)


def _others(groups: Sequence[Group]) -> Section:
    """Runs of no study make one of their own, whose rows are called by the settings in which they differ."""
    cells = labels_of([group.config for group in groups])
    names = [group.runs[0].path.name for group in groups]
    labels = [cell if len(cell) <= LABEL_CHARS_MAX else name for cell, name in zip(cells, names, strict=True)]
    rows = tuple(
        Row(f"row-{i}", _with_all_targets(group), label, (cell,))
        for i, (group, label, cell) in enumerate(zip(groups, labels, cells, strict=True), 1)
    )
    about = "Runs that belong to no other table"
    study = Study(OTHERS, about, rows, (*MEASURES, *_target_measures(groups), "training_min", "memory_mib"), timed=True)
    return Section(study, tuple(Line(row, group) for row, group in zip(rows, groups, strict=True)))


def _with_all_targets(group: Group) -> Config:
    """The group's config, with the targets of all its runs."""
    targets = sorted({target for run in group.runs for target in run.config.run.targets})
    return configs.override(group.config, f"run.targets={json.dumps(targets)}")


def _target_measures(groups: Sequence[Group]) -> tuple[str, ...]:
    targets = sorted({f"{target:g}" for group in groups for run in group.runs for target in run.config.run.targets})
    return tuple(name for target in targets for name in (f"r{target}", f"t{target}", f"payload_real_tb_{target}"))


def labels_of(all_of: Sequence[Config]) -> tuple[str, ...]:
    """The settings that tell these configs apart; for a single one, those that are not the default."""
    flat = [_flat(config) for config in [*all_of, *([] if len(all_of) > 1 else [Config()])]]
    keys = [key for key in flat[0] if len({json.dumps(values[key]) for values in flat}) > 1]
    short = {key: key.rpartition(".")[2] for key in keys}
    names = {key: name if list(short.values()).count(name) == 1 else key for key, name in short.items()}
    shown = [[f"{names[key]} = {_shown(values[key])}" for key in keys] for values in flat[: len(all_of)]]
    return tuple(", ".join(settings) or "the built-in default" for settings in shown)


def _shown(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _flat(config: Config) -> dict[str, Any]:
    """The settings that can name a row, by dotted key."""
    values: dict[str, Any] = config.model_dump(mode="json")
    flat = {}
    for key, _, name in configs.settings():
        section = key.rpartition(".")[0]
        if not key.startswith(UNNAMED):
            flat[key] = (values[section] if section else values)[name]
    return flat
