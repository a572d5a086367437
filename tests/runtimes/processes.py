"""Runs a function on several ranks of torch.distributed on this machine, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(["torch", "torch.distributed", "gcpsl.training", "runtimes.test_contract"])


def on_ranks(size: int, folder: Path, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What the function returns on each rank. The first rank that fails makes the test fail, with its traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        START.Process(target=_rank, args=(folder, environment | {"RANK": str(rank)}, function, args))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(300)
    results = [pickle.loads((folder / f"rank-{rank}").read_bytes()) for rank in range(size)]  # noqa: S301 - our own
    for result in results:
        if isinstance(result, Failure):
            raise AssertionError(result.text)
    return results


class Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _rank(folder: Path, environment: dict[str, str], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ |= environment
    try:
        result = function(*args)
    except BaseException:  # noqa: BLE001 - the test's own process shows it
        result = Failure(traceback.format_exc())
    (folder / f"rank-{environment['RANK']}").write_bytes(pickle.dumps(result))
