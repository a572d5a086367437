"""What a user can get wrong. Every message says what was wrong, what is allowed, and what to do.

Each class carries the exit code of the command line; anything else that escapes is a defect of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

INTERRUPTED = 130  # the exit code of what Ctrl-C or SIGTERM has stopped


class GcpslError(Exception):
    """The base of everything a user can cause; never raised itself."""

    exit_code = 1


class ConfigError(GcpslError):
    """A setting is unknown, out of range, or at odds with another."""

    exit_code = 2


class DataError(GcpslError):
    """Data is missing, damaged, or can't be partitioned as asked."""

    exit_code = 3


class RunError(GcpslError):
    """A run can't be started, continued or read."""

    exit_code = 4


class RanksError(RunError):
    """Another process of the same run died, hangs or is cut off; starting all of them again may help."""

    exit_code = 5


class SplitError(ConfigError):
    """A model can't be cut where it was asked to be."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The tail of a message about an unknown name: the nearest valid one, or all of them."""
    choices = list(allowed)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "choose one of: " + ", ".join(choices)
