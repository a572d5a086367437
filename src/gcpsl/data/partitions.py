"""How training samples are dealt to clients: one integer, the owner, for each sample.

Sees labels only, never images. Everything follows from the seed. K clients, M classes, n samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gcpsl.config import PartitionConfig
from gcpsl.data.extended_dirichlet import dirichlet_shares, gpsl, li_lyu
from gcpsl.data.partition_file import read_partition
from gcpsl.errors import ConfigError, DataError
from gcpsl.seeds import Purpose, stream

IntArray = NDArray[np.int64]

REDRAWS_MAX = 100


@dataclass(frozen=True, eq=False)
class Partition:
    """`owners[i]` is the client of sample i; client k is called `ids[k]`."""

    owners: IntArray
    ids: tuple[str, ...]


def partition(
    config: PartitionConfig, labels: IntArray, classes: int, seed: int, kept: IntArray | None = None
) -> Partition:
    """Deals the samples to clients by the config's rule; every client gets at least one.

    Settings that the data can't satisfy are a ConfigError, a partition file that doesn't fit it is a DataError.

    `labels` are those of all training samples, `kept` the rows that are dealt (all, if none are held out for
    validation). The owners are those of the kept rows, in their order.
    """
    rows = np.arange(len(labels)) if kept is None else kept
    if config.kind == "file":
        dealt = _from_file(config, len(labels), rows)
    else:
        if config.clients > len(rows):
            raise ConfigError(
                f"partition.clients = {config.clients} is more than the {len(rows)} training samples, and every "
                "client needs at least one; lower partition.clients or data.validation_fraction"
            )
        owners = _deal(config, labels[rows], classes, stream(seed, Purpose.PARTITION))
        dealt = Partition(owners, tuple(map(str, range(config.clients))))
    _refuse_empty(config, dealt)
    return dealt


def iid(clients: int, labels: IntArray, generator: np.random.Generator) -> IntArray:
    """Shuffled and cut into near-equal parts, sizes differing by at most one."""
    samples = len(labels)
    owners = np.empty(samples, np.int64)
    owners[generator.permutation(samples)] = np.arange(samples, dtype=np.int64) * clients // samples
    return owners


def dirichlet(clients: int, alpha: float, labels: IntArray, classes: int, generator: np.random.Generator) -> IntArray:
    """Each class is spread by one Dirichlet(alpha) draw over all clients; all is redrawn while a client is empty."""
    members = [np.flatnonzero(labels == label) for label in range(classes)]
    owners = np.empty(len(labels), np.int64)
    for _ in range(REDRAWS_MAX):
        for own in members:
            owners[own] = generator.choice(clients, len(own), p=dirichlet_shares(clients, alpha, generator))
        if np.bincount(owners, minlength=clients).all():
            return owners
    raise ConfigError(
        f"none of {REDRAWS_MAX} Dirichlet draws gave each of partition.clients = {clients} clients a sample; "
        f"lower partition.clients, raise partition.alpha (now {alpha:g}), or use partition.kind = 'iid'"
    )


def shards(clients: int, per_client: int, labels: IntArray, generator: np.random.Generator) -> IntArray:
    """Samples sorted by label, cut into near-equal shards, `per_client` of them dealt to each client at random."""
    samples, count = len(labels), clients * per_client
    if count > samples:
        raise ConfigError(
            f"partition.clients = {clients} with partition.shards_per_client = {per_client} makes {count} shards of "
            f"{samples} training samples; lower either"
        )
    shuffled = generator.permutation(samples)
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    holder = generator.permutation(count) // per_client
    owners = np.empty(samples, np.int64)
    owners[by_label] = holder[np.arange(samples, dtype=np.int64) * count // samples]
    return owners


def _deal(config: PartitionConfig, labels: IntArray, classes: int, generator: np.random.Generator) -> IntArray:
    match config.kind:
        case "iid":
            return iid(config.clients, labels, generator)
        case "dirichlet":
            return dirichlet(config.clients, config.alpha, labels, classes, generator)
        case "shards":
            return shards(config.clients, config.shards_per_client, labels, generator)
        case _:
            rule = gpsl if config.variant == "gpsl" else li_lyu
            return rule(config.clients, config.classes_per_client, config.alpha, labels, classes, generator)


def _from_file(config: PartitionConfig, samples: int, rows: IntArray) -> Partition:
    assert config.file is not None
    owners, ids = read_partition(config.file, config.column)
    if len(owners) != samples:
        raise DataError(
            f"partition.file = '{config.file}' has {len(owners)} rows, but there are {samples} training samples "
            "(before any are held out for validation); it needs one row for each"
        )
    return Partition(owners[rows], ids)


def _refuse_empty(config: PartitionConfig, dealt: Partition) -> None:
    empty = np.flatnonzero(np.bincount(dealt.owners, minlength=len(dealt.ids)) == 0)
    if not empty.size:
        return
    who = f"{empty.size} of {len(dealt.ids)} clients are left without a sample (the first is '{dealt.ids[empty[0]]}')"
    if config.kind == "file":
        raise DataError(
            f"{who}: all of theirs are held out for validation; lower data.validation_fraction, or merge small "
            f"clients in '{config.file}'"
        )
    raise ConfigError(
        f"{who}; lower partition.clients (now {config.clients}), raise partition.alpha (now {config.alpha:g}) or "
        f"partition.classes_per_client (now {config.classes_per_client}), or use partition.kind = 'iid'"
    )
