"""Fusion: the sample-weighted mean of all replicas' parameters and normalisation state. Optimizer state stays local.

A replica is a sequence of flat buffers. Sums are taken in float64, so fusing equal replicas changes no bit.
Knows nothing of models, clients or when fusion happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

CHUNK = (1 << 15, 1 << 20)  # elements summed at a time: what a core's cache holds, and on a GPU what fills it


def fuse(replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]) -> None:
    """Write the weighted mean of the replicas, buffer by buffer; counters round to the nearest integer."""
    for index, target in enumerate(into):
        buffers = [replica[index] for replica in replicas]
        for part, mean in _means(buffers, weights):
            target[part] = mean if target.is_floating_point() else mean.round().to(target.dtype)


def drift(replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], mean: Sequence[Tensor]) -> float:
    """How far the replicas lie apart: their weighted RMS distance from the mean, relative to the mean's norm."""
    return relative_drift([squared_distance(replica, mean) for replica in replicas], weights, mean)


def squared_distance(replica: Sequence[Tensor], mean: Sequence[Tensor]) -> float:
    """Of one replica from the mean."""
    return sum(_squared_norm(buffer - centre) for buffer, centre in zip(replica, mean, strict=True))


def relative_drift(squared_distances: Sequence[float], weights: Sequence[float], mean: Sequence[Tensor]) -> float:
    """The drift of replicas that are known by their squared distances from the mean only."""
    norm = sum(_squared_norm(centre) for centre in mean)
    spread = sum(weight * square for weight, square in zip(weights, squared_distances, strict=True))
    return math.sqrt(spread / norm) if norm else 0.0


def _squared_norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


def _means(buffers: Sequence[Tensor], weights: Sequence[float]) -> Iterator[tuple[slice, Tensor]]:
    """The weighted mean in float64, chunk by chunk, in memory that the next chunk uses again."""
    chunk = CHUNK[buffers[0].device.type == "cuda"]
    room = torch.empty(2, min(chunk, len(buffers[0])), dtype=torch.float64, device=buffers[0].device)
    for start in range(0, len(buffers[0]), chunk):
        part = slice(start, start + chunk)
        mean, term = room[:, : len(buffers[0][part])]
        mean.zero_()
        for weight, buffer in zip(weights, buffers, strict=True):
            # product and sum apart: fused they may round otherwise at the end of a buffer than in its middle
            mean.add_(term.copy_(buffer[part]).mul_(weight))
        yield part, mean
