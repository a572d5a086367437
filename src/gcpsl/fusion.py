"""Fusion: the sample-weighted mean of all replicas' parameters and normalisation state. Optimizer state stays local.

A replica is a sequence of flat buffers. The mean is taken around the first replica, x_0 + sum of w_n (x_n - x_0): equal
replicas fuse to themselves, and little is lost to rounding, as replicas lie close together. It goes element by element
in the replicas' order, so that it doesn't matter where a buffer is cut. Knows nothing of models, clients or when.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK = (1 << 16, 1 << 22)  # elements at a time: what a core's cache holds, and on a GPU what fills it


def fuse(replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]) -> None:
    """Write the weighted mean of the replicas, buffer by buffer; counters round to the nearest integer."""
    for index, target in enumerate(into):
        buffers = [replica[index] for replica in replicas]
        if target.is_floating_point():
            _fuse_floats(buffers, weights, target)
        else:
            mean = sum(weight * buffer.double() for weight, buffer in zip(weights, buffers, strict=True))
            target.copy_(torch.as_tensor(mean).round())


def _fuse_floats(buffers: Sequence[Tensor], weights: Sequence[float], into: Tensor) -> None:
    first, *others = buffers
    chunk = CHUNK[into.device.type == "cuda"]
    room = torch.empty(min(chunk, len(into)), dtype=into.dtype, device=into.device)
    for start in range(0, len(into), chunk):
        part = slice(start, start + chunk)
        mean, centre = into[part], first[part]
        mean.copy_(centre)
        term = room[: len(mean)]
        for weight, buffer in zip(weights[1:], others, strict=True):
            torch.sub(buffer[part], centre, out=term)
            # product and sum apart: fused they may round otherwise at the end of a buffer than in its middle
            mean.add_(term.mul_(weight))


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
