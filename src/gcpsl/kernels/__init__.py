"""What the graphed runtime computes a round of N stacked replicas with, twice over.

`fast` launches Triton kernels, each over all replicas at once; `plain` is its twin in ordinary PyTorch, which the CPU
runs and the tests compare. Both offer the functions of `Operations`. Know nothing of clusters, plans or schedules.
"""

from __future__ import annotations

import importlib.util
from typing import cast

import torch

from gcpsl.kernels.shapes import Addend, Augmentation, ConvShape, Norm, Operations, Origin, Plan, Update

__all__ = ["Addend", "Augmentation", "ConvShape", "Norm", "Operations", "Origin", "Plan", "Update", "operations_for"]


def operations_for(device: torch.device) -> Operations:
    """The Triton kernels on a GPU that has them, else their twins."""
    if device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        from gcpsl.kernels import fast

        return cast(Operations, fast)
    from gcpsl.kernels import plain

    return cast(Operations, plain)
