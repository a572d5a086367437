"""Split models: the zoo, the cut, the client's norms, and their sizes. Importing this imports no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gcpsl.models.assembly import SplitModel, build
    from gcpsl.models.norms import to_group_norm
    from gcpsl.models.sizes import SegmentSizes, segment_sizes
    from gcpsl.models.splitting import Segments, cuts, split

__all__ = [
    "SegmentSizes",
    "Segments",
    "SplitModel",
    "build",
    "cuts",
    "segment_sizes",
    "split",
    "to_group_norm",
]

_HOMES = {
    "SegmentSizes": "sizes",
    "Segments": "splitting",
    "SplitModel": "assembly",
    "build": "assembly",
    "cuts": "splitting",
    "segment_sizes": "sizes",
    "split": "splitting",
    "to_group_norm": "norms",
}


def __getattr__(name: str) -> Any:
    """Loads a name's module at its first use, so that the planner's `segment_sizes` stays free of torch."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
