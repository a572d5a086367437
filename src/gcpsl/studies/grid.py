"""A study from a TOML file: axes whose values are combined, rows of their own, or both.

about = "..."            seeds = [0, 1]           measures = ["accuracy", "r90"]
base = "quickstart"      a preset, or a TOML file beside this one; none is the built-in default
timed = true             seconds are measured, so runs don't share a device
[settings]               for every row        [axes]    setting = [values]
[rows.NAME]              settings of one row  [smoke]   what makes a row small
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from gcpsl import config as configs
from gcpsl.config import Config
from gcpsl.errors import ConfigError, nearest
from gcpsl.studies.base import Row, Study

KEYS = ("about", "base", "seeds", "measures", "timed", "settings", "axes", "rows", "smoke")
TABLES = ("settings", "axes", "rows", "smoke")
WORDS_OF_A_ROW = ("label", "default")


def from_toml(path: Path) -> Study:
    """The study that a file describes, named after the file."""
    values = _read(path)
    base = _with(_base(values.get("base"), path.parent), _flat(values.get("settings", {})), path)
    axes = _axes(values.get("axes", {}), path)
    rows = [*_explicit(values.get("rows", {}), base, axes, path), *_combined(base, axes, path)]
    if not rows:
        raise ConfigError(f"'{path}' has no rows: give values to [axes], or settings to [rows.NAME]")
    smoke = _flat(values.get("smoke", {}))
    more = {name: values[name] for name in ("measures", "seeds") if name in values}
    return Study(
        path.stem,
        str(values.get("about", f"the grid of {path.name}")),
        tuple(rows),
        headings=tuple(_short(axis, axes) for axis in axes) or ("Row",),
        timed=bool(values.get("timed", False)),
        smoke=partial(_with, changes=smoke, path=path) if smoke else None,
        **{name: tuple(_list(value, name, path)) for name, value in more.items()},
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"no study file '{path}'; give a .py or .toml file, or see: gcpsl study list") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read '{path}': {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"'{path}' is not valid TOML: {error}") from None
    for name, value in values.items():
        if name not in KEYS:
            raise ConfigError(f"'{path}' has '{name}', which a study doesn't know: {nearest(name, KEYS)}")
        if name in TABLES and not isinstance(value, dict):
            raise ConfigError(f"'{name}' in '{path}' is a table: write [{name}], and its settings below")
    return values


def _base(name: object, beside: Path) -> Config:
    if name is None or str(name) in configs.presets():
        return configs.load(None if name is None else str(name))
    file = beside / str(name)
    return configs.load(file if file.is_file() else str(name))


def _axes(table: Mapping[str, Any], path: Path) -> dict[str, list[Any]]:
    """Each setting and the values that it takes."""
    return {key: _list(values, key, path) for key, values in _flat(table).items()}


def _list(values: object, name: str, path: Path) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"'{name}' in '{path}' must be a list of values, as in [2, 4]")
    return values


def _combined(base: Config, axes: Mapping[str, list[Any]], path: Path) -> Iterator[Row]:
    """A row for every combination."""
    for values in product(*axes.values()) if axes else ():
        named = [f"{_short(axis, axes)} = {value}" for axis, value in zip(axes, values, strict=True)]
        name = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", one).strip("-") for one in named)
        config = _with(base, dict(zip(axes, values, strict=True)), path)
        yield Row(name, config, ", ".join(named), tuple(str(value) for value in values))


def _explicit(table: Mapping[str, Any], base: Config, axes: Mapping[str, list[Any]], path: Path) -> Iterator[Row]:
    """The rows that are written out, with what they have on the axes."""
    for name, values in table.items():
        if not isinstance(values, dict):
            raise ConfigError(f"'rows.{name}' in '{path}' is a table: write [rows.{name}], and its settings below")
        about = {word: values[word] for word in WORDS_OF_A_ROW if word in values}
        changes = _flat({key: value for key, value in values.items() if key not in WORDS_OF_A_ROW})
        config = _with(base, changes, path)
        cells = tuple(str(_at(config, axis)) for axis in axes)
        yield Row(name, config, str(about.get("label", "")), cells, default=bool(about.get("default", True)))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`schedule.workloads = 2`, quoted or not, as dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _with(config: Config, changes: Mapping[str, Any], path: Path) -> Config:
    """The config with some settings changed; "none" clears one, as on the command line."""
    values = config.model_dump(mode="json")
    for key, value in changes.items():
        *sections, name = key.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"'{path}': '{key}' is not a setting: '{section}' has no settings below it")
        inner[name] = None if value == "none" else value
    try:
        return configs.from_mapping(values)
    except ConfigError as error:
        raise ConfigError(f"'{path}': {error}") from None


def _at(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _short(axis: str, axes: Mapping[str, list[Any]]) -> str:
    """The setting's own name, unless two axes share it."""
    own = axis.rpartition(".")[2]
    return own if [other.rpartition(".")[2] for other in axes].count(own) == 1 else axis
