"""The precision of products, and PyTorch's global switches for it, set only while a runtime computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from gcpsl.config import RuntimeConfig
from gcpsl.errors import ConfigError

Precision = Literal["bf16", "fp16", "tf32", "fp32"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}


def graphed_precision(config: RuntimeConfig, device: torch.device) -> Precision:
    """What the graphed runtime computes products in."""
    if config.precision == "auto":
        return "bf16" if device.type == "cuda" else "fp32"
    if device.type != "cuda" and config.precision in ("fp16", "tf32"):
        raise ConfigError(f"runtime.precision = '{config.precision}' needs CUDA; on the CPU use 'fp32' or 'bf16'")
    return config.precision


@dataclass(frozen=True)
class Numerics:
    """How products are computed. `set` switches PyTorch over for a while."""

    precision: Precision
    deterministic: bool

    @contextmanager
    def set(self) -> Iterator[None]:
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark
        strict = torch.are_deterministic_algorithms_enabled()
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        cudnn.allow_tf32 = matmul.allow_tf32 = self.precision != "fp32"
        cudnn.deterministic, cudnn.benchmark = self.deterministic, not self.deterministic
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = before
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)
