"""What the coordinator may know of the clients: their ids, sample counts and class histograms.

Knows nothing of samples, clusters or files' contents beyond these three.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gcpsl.errors import DataError

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Fleet:
    """K clients. `histograms` is [K, classes], or None where only counts were disclosed."""

    ids: tuple[str, ...]
    counts: IntArray
    histograms: IntArray | None = None

    def __post_init__(self) -> None:
        assert self.counts.shape == (len(self.ids),)
        if self.histograms is not None:
            assert self.histograms.shape[0] == len(self.ids)
            assert np.array_equal(self.histograms.sum(axis=1), self.counts)
        empty = np.flatnonzero(self.counts <= 0)
        if empty.size:
            names = ", ".join(self.ids[k] for k in empty[:5])
            more = f" and {empty.size - 5} more" if empty.size > 5 else ""
            raise DataError(
                f"{empty.size} of {len(self.ids)} clients have no samples ({names}{more}); "
                "every client must own at least one: use fewer clients, more data or another partition"
            )

    @property
    def clients(self) -> int:
        return len(self.ids)

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @classmethod
    def from_owners(cls, owners: IntArray, labels: IntArray, classes: int, ids: tuple[str, ...] | None = None) -> Fleet:
        """The fleet of a partition: `owners[i]` is the client that holds sample i, clients being 0..K-1."""
        clients = len(ids) if ids is not None else int(owners.max(initial=-1)) + 1
        flat = np.bincount(owners * classes + labels, minlength=clients * classes)
        histograms = flat.reshape(clients, classes).astype(np.int64)
        names = ids if ids is not None else tuple(str(k) for k in range(clients))
        return cls(ids=names, counts=histograms.sum(axis=1), histograms=histograms)
