"""What this machine computes with. Imports torch only where there may be a GPU, so that asking is quick elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

GPU_NODES = ("nvidia[0-9]*", "kfd", "dxg")  # below /dev, by NVIDIA's, AMD's and WSL's drivers


def gpus() -> int:
    """How many this process may use."""
    if sys.platform == "linux" and not any(node for name in GPU_NODES for node in Path("/dev").glob(name)):
        return 0
    import torch

    return torch.cuda.device_count()


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def use_threads(threads: int) -> None:
    """For PyTorch's work on the CPU, in this process."""
    import torch

    torch.set_num_threads(threads)
