"""Named random streams: every draw is a function of (seed, purpose, counters), so nothing needs pickling.

Two kinds. `stream` is a NumPy generator, for draws made once per run or once per cluster and epoch. `keyed_bits`
hashes each element's own counters, so that a million clients' draws are one vector operation and any one client
can compute its own without knowing of the others.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

UInt64Array = NDArray[np.uint64]


class Purpose(IntEnum):
    """One stream per purpose. A number is never reused for something else: runs must stay reproducible."""

    VALIDATION_SPLIT = 1
    PARTITION = 2
    CLUSTERING = 3
    SAMPLER = 4
    CLIENT_ORDER = 5
    AUGMENTATION = 6
    MODEL_INIT = 7
    TEST_SPLIT = 8
    NOISE = 9


def _sequence(seed: int, purpose: Purpose, counters: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *counters))


def stream(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """The generator for one purpose, at one place (a cluster, an epoch)."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, counters)))


def integer_seed(seed: int, purpose: Purpose, *counters: int) -> int:
    """A seed for somebody else's generator (torch's), below 2**63."""
    return int(_sequence(seed, purpose, counters).generate_state(1, np.uint64)[0] >> np.uint64(1))


def keyed_bits(seed: int, purpose: Purpose, epoch: int, client: UInt64Array, index: UInt64Array) -> UInt64Array:
    """64 random bits for each (client, index) pair in one epoch, element by element.

    SplitMix64's finaliser, applied once per counter. Sorting a client's indices by these bits gives its random order.
    """
    state = _mix(client ^ np.uint64(integer_seed(seed, purpose, epoch)))
    return _mix(state + index)


def _mix(state: UInt64Array) -> UInt64Array:
    z = state + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
