"""A rank's share of a run: its own workloads and samples, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from conftest import random_dataset

from gcpsl.config import Config
from gcpsl.data import FederatedData, federate
from gcpsl.errors import RunError
from gcpsl.ranks import Alone
from gcpsl.sampling import Holdings
from gcpsl.schedule import EpochSchedule, epoch_schedule
from gcpsl.share import Share


class Second(Alone):
    """The second of two ranks, as far as its share goes."""

    rank, size = 1, 2


def made(config: Config, epoch: int = 1, shift: int = 0) -> tuple[FederatedData, EpochSchedule]:
    data = federate(config, random_dataset())
    clients, workloads = data.fleet.clients, config.schedule.workloads
    assignment = (np.arange(clients) + shift) % workloads
    holdings = Holdings.of(data.owners, clients)
    return data, epoch_schedule(config.schedule, holdings, assignment, seed=0, epoch=epoch)


def test_a_rank_holds_what_its_clients_hold_and_draws_the_same_samples(small: Callable[..., Config]) -> None:
    config = small("schedule.workloads=3")
    data, first = made(config)
    share = Share.of(config.schedule, first, Second())
    own = share.data(data)
    assert share.numbers == range(1, 3)
    assert len(own.train.labels) == sum(len(plan.samples) for plan in first.plans[1:])
    for epoch in (1, 2):
        _, whole = made(config, epoch)
        for plan, local in zip(whole.plans[1:], share.schedule(whole).plans, strict=True):
            assert np.array_equal(own.train.images[local.samples], data.train.images[plan.samples])
            assert np.array_equal(own.train.labels[local.samples], data.train.labels[plan.samples])
    assert np.array_equal(share.labels_only(data).train.labels, data.train.labels)


@pytest.mark.parametrize("change", [{"draw": "all"}, {"assignment": "redrawn"}])
def test_a_rank_that_may_need_any_sample_holds_all(change: dict[str, str], small: Callable[..., Config]) -> None:
    config = small()
    data, first = made(config)
    share = Share.of(config.schedule.model_copy(update=change), first, Second())
    assert share.data(data) is data
    assert replace(share.schedule(first), numbers=first.numbers).plans == first.plans[1:]


def test_samples_that_a_rank_does_not_hold_are_refused_and_never_mistaken_for_others(
    small: Callable[..., Config],
) -> None:
    config = small()
    _, first = made(config)
    share = Share.of(config.schedule, first, Second())
    _, other = made(config, shift=1)
    with pytest.raises(RunError, match="continue it in one process"):
        share.schedule(other)
