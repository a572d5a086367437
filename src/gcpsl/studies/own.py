"""Studies by name or file: the paper's, a user's Python file, or a user's TOML grid."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from gcpsl.errors import ConfigError, GcpslError, nearest
from gcpsl.studies.base import Row, Study
from gcpsl.studies.grid import from_toml
from gcpsl.studies.paper import paper_studies

FUNCTION = "study"


def find_study(source: str, *, smoke: bool = False) -> Study:
    """The paper's study of that name, or the one that a .py or .toml file describes."""
    study = _find(source)
    return study.smoked() if smoke else study


def _find(source: str) -> Study:
    path = Path(source)
    if path.suffix == ".py":
        return from_python(path)
    if path.suffix == ".toml":
        return from_toml(path)
    known = {study.name: study for study in paper_studies()}
    if source not in known:
        raise ConfigError(f"no study '{source}': {nearest(source, known)} (a study of your own is a .py or .toml file)")
    return known[source]


def from_python(path: Path) -> Study:
    """What the file's function `study` returns: a `Study`, or rows that make one named after the file."""
    module = _load(path)
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise ConfigError(
            f"'{path}' has no function {FUNCTION}(); define one that returns a gcpsl.studies.Study or rows"
        )
    try:
        made = function()
    except GcpslError:
        raise
    except Exception as error:
        raise ConfigError(f"{FUNCTION}() of '{path}' failed: {type(error).__name__}: {error}") from error
    if isinstance(made, Study):
        return made
    rows = tuple(made) if isinstance(made, Iterable) else ()
    if not rows or not all(isinstance(row, Row) for row in rows):
        raise ConfigError(
            f"{FUNCTION}() of '{path}' returned {type(made).__name__}; return a gcpsl.studies.Study, or a list of "
            "gcpsl.studies.Row"
        )
    return Study(path.stem, (module.__doc__ or "").strip().partition("\n")[0], rows)


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no study file '{path}'; give a .py or .toml file, or see: gcpsl study list")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that a file of the user's can't stand in for an installed package
    spec = importlib.util.spec_from_file_location(f"study_file_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except GcpslError:
        raise
    except Exception as error:
        raise ConfigError(f"importing '{path}' failed: {type(error).__name__}: {error}") from error
    return module
