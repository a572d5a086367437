"""How far batches stray from the global class distribution: the paper's batch deviation.

Knows the labels of the samples drawn, so it runs where training runs; `expected` needs histograms only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gcpsl.fleet import IntArray
from gcpsl.metrics.participation import batch_ids
from gcpsl.sampling import EpochPlan


def batch_deviation(plans: Sequence[EpochPlan], labels: IntArray, classes: int, *, shared: bool = False) -> float:
    """The batches' mean L1 distance to the class distribution of all training samples (0 to 2).

    `labels` are all training samples', indexed by the plans' samples. With `shared`, a batch is the union of
    the workloads' shares of a round.
    """
    target = np.bincount(labels, minlength=classes) / len(labels)
    drawn = np.concatenate([labels[plan.samples] for plan in plans])
    batches = batch_ids(plans, shared)
    counts = np.bincount(batches * classes + drawn, minlength=(int(batches.max()) + 1) * classes)
    counts = counts.reshape(-1, classes)
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(np.abs(shares - target).sum(axis=1).mean())
