"""Fusion: the sample-weighted mean of all replicas' parameters and normalisation state. Optimizer state stays local.

A replica is a sequence of flat buffers. Sums are taken in float64, so fusing equal replicas changes no bit.
Knows nothing of models, clients or when fusion happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

CHUNK = 1 << 20  # elements summed at a time, so that float64 copies stay small


def fuse(replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]) -> None:
    """Write the weighted mean of the replicas, buffer by buffer; counters round to the nearest integer."""
    for index, target in enumerate(into):
        buffers = [replica[index] for replica in replicas]
        for part, mean in _means(buffers, weights):
            target[part] = mean if target.is_floating_point() else mean.round().to(target.dtype)


def drift(replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], mean: Sequence[Tensor]) -> float:
    """How far the replicas lie apart: their weighted RMS distance from the mean, relative to the mean's norm."""
    spread, norm = torch.zeros(2, dtype=torch.float64, device=mean[0].device)
    for centre in mean:
        norm += torch.linalg.vector_norm(centre, dtype=torch.float64).square()
    for weight, replica in zip(weights, replicas, strict=True):
        for buffer, centre in zip(replica, mean, strict=True):
            spread += weight * torch.linalg.vector_norm(buffer - centre, dtype=torch.float64).square()
    return math.sqrt(float(spread) / float(norm)) if norm else 0.0


def _means(buffers: Sequence[Tensor], weights: Sequence[float]) -> Iterator[tuple[slice, Tensor]]:
    """The weighted mean in float64, chunk by chunk."""
    for start in range(0, len(buffers[0]), CHUNK):
        part = slice(start, start + CHUNK)
        mean = torch.zeros_like(buffers[0][part], dtype=torch.float64)
        for weight, buffer in zip(weights, buffers, strict=True):
            mean += weight * buffer[part].double()
        yield part, mean
