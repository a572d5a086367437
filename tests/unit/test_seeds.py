"""Named random streams: reproducible, apart from each other, and evenly spread."""

from __future__ import annotations

import numpy as np

from gcpsl.seeds import Purpose, integer_seed, keyed_bits, stream


def test_streams_differ_by_seed_purpose_and_counters_and_repeat_otherwise() -> None:
    keys = [
        (0, Purpose.SAMPLER, 1, 2),
        (1, Purpose.SAMPLER, 1, 2),
        (0, Purpose.PARTITION, 1, 2),
        (0, Purpose.SAMPLER, 2, 1),
    ]
    draws = [tuple(stream(seed, purpose, *counters).integers(0, 2**60, 4)) for seed, purpose, *counters in keys]
    again = [tuple(stream(seed, purpose, *counters).integers(0, 2**60, 4)) for seed, purpose, *counters in keys]
    assert draws == again
    assert len(set(draws)) == len(keys)


def test_integer_seeds_fit_torch() -> None:
    assert all(0 <= integer_seed(seed, Purpose.MODEL_INIT) < 2**63 for seed in range(200))


def test_keyed_bits_are_computed_element_by_element() -> None:
    clients, indices = np.arange(50, dtype=np.uint64), np.arange(50, dtype=np.uint64) * np.uint64(3)
    together = keyed_bits(7, Purpose.CLIENT_ORDER, 2, clients, indices)
    alone = [keyed_bits(7, Purpose.CLIENT_ORDER, 2, clients[i : i + 1], indices[i : i + 1])[0] for i in range(50)]
    assert together.tolist() == alone


def test_every_one_of_the_64_bits_is_set_half_the_time_and_independently_of_its_neighbour() -> None:
    clients, indices = np.divmod(np.arange(40_000, dtype=np.uint64), np.uint64(200))
    bits = keyed_bits(0, Purpose.AUGMENTATION, 1, clients, indices)
    table = (bits[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(table.mean(axis=0) - 0.5).max() < 0.015
    assert np.abs(np.corrcoef(table.T.astype(float)) - np.eye(64)).max() < 0.03
    assert abs(np.corrcoef(table[1:, 0].astype(float), table[:-1, 0].astype(float))[0, 1]) < 0.03
