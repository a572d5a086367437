"""What the benchmarks share: JSON lines, synthetic data, and turns, so that ratios survive a noisy machine."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from gcpsl.data import Dataset, Samples

RECORDED: list[dict[str, object]] = []  # every figure that was reported


def report(name: str, value: float, unit: str, limit: str = "", **detail: object) -> None:
    """One figure as one JSON line."""
    RECORDED.append({"name": name, "value": round(value, 4), "unit": unit, "limit": limit, **detail})
    print(json.dumps(RECORDED[-1]), flush=True)


def synthetic(samples: int, shape: tuple[int, int, int], classes: int = 10) -> Dataset:
    """Random uint8 images with balanced labels."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (samples, *shape), dtype=np.uint8)
    labels = np.arange(samples) % classes
    few = slice(0, 10 * classes)
    return Dataset("synthetic", classes, Samples(images, labels), Samples(images[few], labels[few]))


def interleaved(contenders: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each contender, taking turns; the first turn of each warms up and isn't counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        names = list(contenders) if turn % 2 == 0 else list(contenders)[::-1]
        for name in names:
            started = time.perf_counter()
            contenders[name]()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(numerator: list[float], denominator: list[float]) -> float:
    """The median of the turns' ratios: what slows a whole turn down cancels."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))
