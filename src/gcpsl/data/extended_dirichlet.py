"""Extended Dirichlet partitions: each client holds C of the M classes, each class is spread over its holders.

Two published versions, which differ in how classes are drawn and in whether clients may end up small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gcpsl.errors import ConfigError

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

SUPPORT_REDRAWS_MAX = 10_000
SIZE_REDRAWS_MAX = 1000
LI_LYU_SAMPLES_MIN = 10
ALPHA_MAX = 1e300
"""The shares of such a draw are equal to the last digit, and the sums that make them stay finite."""


def dirichlet_shares(clients: int, alpha: float, generator: np.random.Generator) -> FloatArray:
    """One symmetric Dirichlet draw, for any alpha above 0; a huge one gives equal shares."""
    return generator.dirichlet(np.full(clients, min(alpha, ALPHA_MAX)))


def gpsl(
    clients: int, per_client: int, alpha: float, labels: IntArray, classes: int, generator: np.random.Generator
) -> IntArray:
    """The GPSL authors': holders are spread evenly over classes; sizes are left to chance, and can be zero.

    Each class has one Dirichlet(alpha) draw over its holders, from which each of its samples picks on its own.
    """
    _refuse_impossible(clients, per_client, classes)
    holds_km = _support(lambda: _even_support(clients, per_client, classes, generator), 1)
    owners = np.empty(len(labels), np.int64)
    for label in range(classes):
        own, holders = np.flatnonzero(labels == label), np.flatnonzero(holds_km[:, label])
        owners[own] = generator.choice(holders, len(own), p=dirichlet_shares(len(holders), alpha, generator))
    return owners


def li_lyu(
    clients: int, per_client: int, alpha: float, labels: IntArray, classes: int, generator: np.random.Generator
) -> IntArray:
    """Li and Lyu's: classes are drawn uniformly, no client has fewer than ten samples, and large ones stop growing."""
    _refuse_impossible(clients, per_client, classes)
    if len(labels) < clients * LI_LYU_SAMPLES_MIN:
        raise ConfigError(
            f"partition.variant = 'li_lyu' gives each client at least {LI_LYU_SAMPLES_MIN} samples, but "
            f"partition.clients = {clients} share {len(labels)}; lower partition.clients or use variant 'gpsl'"
        )
    holders_min = max(per_client * clients // classes // 5, 1)
    holds_km = _support(lambda: _uniform_support(clients, per_client, classes, generator), holders_min)
    class_sizes = np.bincount(labels, minlength=classes)
    for _ in range(SIZE_REDRAWS_MAX):
        counts_km = _li_lyu_counts(holds_km, class_sizes, alpha, generator)
        if counts_km.sum(axis=1).min() >= LI_LYU_SAMPLES_MIN:
            break
    else:
        raise ConfigError(
            f"none of {SIZE_REDRAWS_MAX} draws of partition.variant = 'li_lyu' gave each of partition.clients = "
            f"{clients} clients {LI_LYU_SAMPLES_MIN} samples; lower partition.clients, raise partition.alpha "
            f"(now {alpha:g}) or partition.classes_per_client (now {per_client}), or use variant 'gpsl'"
        )
    owners = np.empty(len(labels), np.int64)
    for label in range(classes):
        own = generator.permutation(np.flatnonzero(labels == label))
        owners[own] = np.repeat(np.arange(clients), counts_km[:, label])
    return owners


def _refuse_impossible(clients: int, per_client: int, classes: int) -> None:
    if per_client > classes:
        raise ConfigError(
            f"partition.classes_per_client = {per_client} is more than the {classes} classes of the data; "
            f"lower it to {classes} or less"
        )
    if clients * per_client < classes:
        raise ConfigError(
            f"partition.clients = {clients} with partition.classes_per_client = {per_client} can hold at most "
            f"{clients * per_client} of the {classes} classes, so some samples would have no owner; raise either"
        )


def _support(draw: Callable[[], BoolArray], holders_min: int) -> BoolArray:
    """Which client holds which class, [K, M], drawn until every class has enough holders to own its samples."""
    for _ in range(SUPPORT_REDRAWS_MAX):
        holds_km = draw()
        if holds_km.sum(axis=0).min() >= holders_min:
            return holds_km
    raise ConfigError(
        f"none of {SUPPORT_REDRAWS_MAX} draws gave every class at least {holders_min} clients to hold it; raise "
        "partition.clients or partition.classes_per_client"
    )


def _even_support(clients: int, per_client: int, classes: int, generator: np.random.Generator) -> BoolArray:
    """Clients in order draw distinct classes, one that was drawn u times so far with weight exp(-M u).

    The largest of log-weight plus Gumbel noise are such a draw without replacement, and cannot underflow.
    """
    log_weight_km = generator.gumbel(size=(clients, classes))
    holds_km = np.zeros((clients, classes), np.bool_)
    penalty = np.zeros(classes)
    for client in range(clients):
        drawn = np.argpartition(penalty - log_weight_km[client], per_client - 1)[:per_client]
        holds_km[client, drawn] = True
        penalty[drawn] += classes
    return holds_km


def _uniform_support(clients: int, per_client: int, classes: int, generator: np.random.Generator) -> BoolArray:
    return generator.random((clients, classes)).argsort(axis=1).argsort(axis=1) < per_client


def _li_lyu_counts(
    holds_km: BoolArray, class_sizes: IntArray, alpha: float, generator: np.random.Generator
) -> IntArray:
    """One draw of how many samples of each class each client has; all zero where a class finds nobody to take it."""
    clients, classes = holds_km.shape
    counts_km = np.zeros((clients, classes), np.int64)
    sizes = np.zeros(clients, np.int64)
    for label in range(classes):
        shares = dirichlet_shares(clients, alpha, generator)
        shares[~holds_km[:, label] | (sizes * clients >= class_sizes.sum())] = 0
        if shares.sum() == 0:
            return np.zeros_like(counts_km)
        cuts = np.floor(np.cumsum(shares / shares.sum()) * class_sizes[label]).astype(np.int64)
        counts_km[:, label] = np.diff(cuts, prepend=0)
        last = np.flatnonzero(holds_km[:, label])[-1]
        counts_km[last, label] += class_sizes[label] - cuts[-1]
        sizes += counts_km[:, label]
    return counts_km
