"""Slots of different speeds: how much of the samples each one's cluster should get. Only the ratios of speeds count.

Knows nothing of clients, rules or time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gcpsl.errors import ConfigError

FloatArray = NDArray[np.float64]
Speeds = Sequence[float] | FloatArray


def relative(speeds: Speeds | None, clusters: int) -> FloatArray:
    """One speed per cluster, the fastest being 1. Equal ones are all exactly 1, as where none are given."""
    if speeds is None:
        return np.ones(clusters)
    if len(speeds) != clusters:
        raise ConfigError(
            f"clustering.speeds has {len(speeds)} speeds for {clusters} clusters; give one for each cluster's slot"
        )
    given = np.asarray(speeds, dtype=np.float64)
    shares: FloatArray = given / given.max()
    return shares


def fastest(speeds: Sequence[float], slots: int) -> tuple[float, ...]:
    """The speeds of so many slots, in their order; of equal ones those that come first."""
    chosen = sorted(range(len(speeds)), key=lambda n: -speeds[n])[:slots]
    return tuple(speeds[n] for n in sorted(chosen))


def target_samples(samples: float, speeds: FloatArray) -> FloatArray:
    """What each cluster should hold for all slots to be done at the same time."""
    targets: FloatArray = samples * speeds / speeds.sum()
    return targets
