"""The built-in data: 1,797 handwritten digits of 8x8 grey pixels, 0 to 16, that scikit-learn ships as a CSV file."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gcpsl.data.dataset import Dataset, Samples
from gcpsl.seeds import Purpose, stream

TEST_FRACTION = 0.2


def digits() -> Dataset:
    """The same class-wise 80/20 split for everybody, whatever the run's seed."""
    # read by hand because importing scikit-learn takes seconds
    spec = find_spec("sklearn")
    assert spec is not None and spec.origin is not None
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    samples = Samples(table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64))
    order = stream(0, Purpose.TEST_SPLIT).permutation(len(samples))
    held_out = np.zeros(len(samples), bool)
    for label in range(10):
        members = order[samples.labels[order] == label]
        held_out[members[: round(TEST_FRACTION * len(members))]] = True
    return Dataset("digits", 10, samples.take(np.flatnonzero(~held_out)), samples.take(np.flatnonzero(held_out)))
