"""A user's own code by import path (`package.module:function`), and libraries that are optional."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gcpsl.errors import ConfigError


def resolve(path: str, setting: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; modules in the current folder are found too.

    `setting` is the key whose value `path` is, for the message when there is no such function.
    """
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute) or path.startswith("."):
        raise ConfigError(f"{setting} = '{path}' is not an import path; write package.module:function")
    module = _import(module_name, path, setting)
    try:
        function = operator.attrgetter(attribute)(module)
    except AttributeError:
        raise ConfigError(
            f"{setting} = '{path}': module '{module_name}' ({getattr(module, '__file__', 'built in')}) "
            f"has no '{attribute}'"
        ) from None
    if not callable(function):
        raise ConfigError(f"{setting} = '{path}' must be a function, and is of type {type(function).__name__}")
    checked: Callable[..., Any] = function
    return checked


def optional(module: str, extra: str, needed_for: str) -> Any:
    """A module that only `pip install 'gcpsl[extra]'` brings."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{needed_for} needs {error.name}, which is not installed: pip install 'gcpsl[{extra}]'"
        ) from None


def _import(module_name: str, path: str, setting: str) -> Any:
    here = str(Path.cwd())
    # last, so that a file of the user's can't stand in for an installed package
    if here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{setting} = '{path}': '{module_name}' needs a module that is missing: {error}"
            ) from error
        raise ConfigError(
            f"{setting} = '{path}': no module '{error.name}' in {here} or among the installed packages"
        ) from None
    except Exception as error:
        raise ConfigError(
            f"{setting} = '{path}': importing '{module_name}' failed: {type(error).__name__}: {error}"
        ) from error
