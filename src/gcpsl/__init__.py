"""gcpsl: clustered parallel split learning across devices that keep their data.

`train`, `resume` and `plan` are the whole of it; every piece below them (clustering rules, the sampler, splitting,
fusion, metrics) can be used alone. Importing this imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gcpsl.api import plan, resume, train
    from gcpsl.config import Config

__all__ = ["Config", "__version__", "plan", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name == "Config":
        from gcpsl.config import Config

        return Config
    if name in ("plan", "resume", "train"):
        from gcpsl import api

        return getattr(api, name)
    raise AttributeError(f"module 'gcpsl' has no attribute '{name}'")
