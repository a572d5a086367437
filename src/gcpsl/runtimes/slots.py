"""Several processes that share a run, on torch.distributed: one execution slot each, wherever they are.

torchrun starts them. Tensors go by NCCL where they are on GPUs and by Gloo elsewhere; who has come to a barrier goes
through the store that the processes met by, so that whoever doesn't can be named. Knows nothing of models or rounds.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from gcpsl import fusion
from gcpsl.errors import ConfigError, RanksError
from gcpsl.ranks import Meeting, own_workloads

LOOK_S, LINGER_S = 0.5, 2.0
SILENT = "."  # a store holds no empty values


def launched_by_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _alive(pid: int) -> bool:
    """Whether the process runs, and is not only a name whose parent has yet to ask what became of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def world_size() -> int:
    return int(os.environ["WORLD_SIZE"])


def refuse_sharing_gpus(processes: int) -> None:
    """NCCL wants a GPU for each of this host's processes."""
    gpus = torch.cuda.device_count()
    if processes > gpus:
        raise ConfigError(
            f"{processes} slots on a machine with {gpus} GPU{'s' * (gpus > 1)}, and each needs one of its own: "
            f"start at most {gpus} (a slot's workloads share its GPU), or choose runtime.device = 'cpu'"
        )


def take_own_gpu() -> torch.device:
    """Of this host's GPUs the one of this rank's number among the ranks here."""
    refuse_sharing_gpus(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(own)
    return own


def _exchange(sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]) -> None:
    """Send each tensor to a rank, and receive into others. Between two ranks they pair up in order.

    Receives come first: Gloo fills a link in both directions only where the other side waits already.
    """
    operations = [dist.P2POp(dist.irecv, tensor, rank) for rank, tensor in receives if len(tensor)]
    operations += [dist.P2POp(dist.isend, tensor, rank) for rank, tensor in sends if len(tensor)]
    for work in dist.batch_isend_irecv(operations) if operations else []:
        work.wait()


class Slots:
    """See `ranks.Ranks`. `close` it when the run has ended."""

    def __init__(self, workloads: int, device: torch.device, timeout_s: float) -> None:
        timeout = timedelta(seconds=timeout_s)
        store, self.rank, self.size = next(rendezvous("env://", timeout=timeout))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = c10d.PrefixStore(f"meetings/{attempt}", store)
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=c10d.PrefixStore(f"tensors/{attempt}", store),
            rank=self.rank,
            world_size=self.size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,  # connects now, and not in the first epoch
        )
        self._timeout_s, self._device, self._meetings = timeout_s, device, itertools.count()
        self._room: Tensor | None = None  # for what is received, kept for the next time
        self._neighbours: dict[int, int] = {}
        self._neighbours = self._on_this_host()
        self._workloads = [len(own_workloads(rank, self.size, workloads)) for rank in range(self.size)]
        self._first = sum(self._workloads[: self.rank])

    def meet(self, place: str, word: str = "") -> Meeting:
        number, started = next(self._meetings), time.monotonic()
        with self._naming(place):
            words = self._words(number, word, started)
        if missing := [str(rank) for rank, said in enumerate(words) if said is None]:
            if self.rank == 0:
                time.sleep(LINGER_S)  # the store may live here, and the others have yet to look
            raise RanksError(
                f"rank{'s' * (len(missing) > 1)} {', '.join(missing)} didn't come to {place} within "
                f"{self._timeout_s:g} s: the process hangs, is stopped or is cut off; raise runtime.timeout_s if it is "
                "only slow"
            )
        return Meeting(tuple(str(said) for said in words), time.monotonic() - started)

    @contextmanager
    def _naming(self, place: str) -> Iterator[None]:
        """What torch.distributed raises inside becomes an error that says where this rank was."""
        try:
            yield
        except RanksError:
            raise
        except RuntimeError as error:
            raise RanksError(
                f"rank {self.rank} lost touch with another at {place}: {str(error).splitlines()[0]}"
            ) from None

    def _words(self, number: int, word: str, started: float) -> list[str | None]:
        """What each rank says when it comes to this meeting; None of those who haven't come in time.

        The last to come gathers the words, so that the store answers each rank once, however many there are.
        """
        keys, gathered = [f"{number}/{rank}" for rank in range(self.size)], f"{number}/all"
        self._store.set(keys[self.rank], word or SILENT)
        if self._store.add(f"{number}/count", 1) == self.size:
            self._store.set(gathered, json.dumps([value.decode() for value in self._store.multi_get(keys)]))
        while not self._is_there(gathered, self._timeout_s - (time.monotonic() - started)):
            if time.monotonic() - started >= self._timeout_s:
                return [SILENT if self._store.check([key]) else None for key in keys]
            self._look_for_the_dead(keys)
        words = json.loads(self._store.get(gathered))
        self._forget(number - 2)  # whose words all have read, as they came to the one after it
        return ["" if said == SILENT else said for said in words]

    def _is_there(self, key: str, within_s: float) -> bool:
        """Whether the store has it, now or soon."""
        try:
            self._store.wait([key], timedelta(seconds=max(0.001, min(LOOK_S, within_s))))
        except dist.DistStoreError:
            return False
        return True

    def _forget(self, number: int) -> None:
        own = [str(self.rank), *(["count", "all"] if self.rank == 0 else [])]
        for name in own if number >= 0 else []:
            self._store.delete_key(f"{number}/{name}")

    def _on_this_host(self) -> dict[int, int]:
        """The other ranks' processes that this one can see."""
        host = f"{socket.gethostname()} {Path('/proc/self/ns/pid').stat().st_ino}" if sys.platform == "linux" else ""
        said = [word.rpartition(" ") for word in self.meet("the start of the ranks", f"{host} {os.getpid()}").words]
        return {rank: int(pid) for rank, (where, _, pid) in enumerate(said) if where == host and rank != self.rank}

    def _look_for_the_dead(self, keys: Sequence[str]) -> None:
        for rank, pid in self._neighbours.items():
            if not _alive(pid) and not self._store.check([keys[rank]]):
                raise RanksError(f"rank {rank} died (its process {pid} is gone)")

    def fuse(self, replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]) -> None:
        """Each rank gets one slice of every replica, sums it in the replicas' order, and tells the others.

        That moves as much as an all-reduce of one replica per rank, and no sum depends on where replicas are. Slices go
        from where they lie.
        """
        if self.size == 1:
            fusion.fuse(replicas, weights, into)
            return
        floating = [i for i, buffer in enumerate(into) if buffer.is_floating_point()]
        own = [[replica[i] for i in floating] for replica in replicas]
        mean = [into[i] for i in floating]
        with self._naming("a fusion"):
            theirs = self._exchange_slices(own, mean)
            slices = [theirs.get(n) or self._slice(own[n - self._first], self.rank) for n in range(len(weights))]
            fusion.fuse(slices, weights, self._slice(mean, self.rank))
            peers = [rank for rank in range(self.size) if rank != self.rank]
            sends = [(rank, piece) for rank in peers for piece in self._slice(mean, self.rank)]
            _exchange(sends, [(rank, piece) for rank in peers for piece in self._slice(mean, rank)])
        self._fuse_counters(replicas, weights, into)

    def _exchange_slices(self, own: Sequence[Sequence[Tensor]], like: Sequence[Tensor]) -> dict[int, list[Tensor]]:
        """Send everybody their slice of this rank's replicas. Returns this rank's slice of all others', by number."""
        shape = [len(piece) for piece in self._slice(like, self.rank)]
        foreign = [
            (rank, n)
            for rank in range(self.size)
            if rank != self.rank
            for n in own_workloads(rank, self.size, sum(self._workloads))
        ]
        if self._room is None or self._room.shape != (len(foreign), sum(shape)):
            with torch.inference_mode(mode=False):  # to be written again outside of it
                self._room = torch.zeros(len(foreign), sum(shape), dtype=like[0].dtype, device=self._device)
        theirs = {n: list(row.split(shape)) for (_, n), row in zip(foreign, self._room, strict=True)}
        peers = [rank for rank in range(self.size) if rank != self.rank]
        sends = [(rank, piece) for rank in peers for replica in own for piece in self._slice(replica, rank)]
        _exchange(sends, [(rank, piece) for rank, n in foreign for piece in theirs[n]])
        return theirs

    def _slice(self, buffers: Sequence[Tensor], rank: int) -> list[Tensor]:
        """A rank's part of all the buffers' elements: a piece, which may be empty, of each."""
        length = sum(len(buffer) for buffer in buffers)
        start, stop = (length * r // self.size for r in (rank, rank + 1))
        pieces = []
        for buffer in buffers:
            pieces.append(buffer[max(0, start) : max(0, min(stop, len(buffer)))])
            start, stop = start - len(buffer), stop - len(buffer)
        return pieces

    def _fuse_counters(
        self, replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]
    ) -> None:
        whole = [i for i, buffer in enumerate(into) if not buffer.is_floating_point() and len(buffer)]
        if not whole:
            return
        mine = torch.zeros(sum(self._workloads), sum(len(into[i]) for i in whole), dtype=torch.float64)
        for row, replica in enumerate(replicas):
            mine[self._first + row] = torch.cat([replica[i] for i in whole])
        everyones = self.total(mine).to(torch.int64)
        columns = [everyones[:, at] for at in torch.arange(everyones.shape[1]).split([len(into[i]) for i in whole])]
        for i, counters in zip(whole, columns, strict=True):
            mean = torch.empty_like(into[i], device="cpu")
            fusion.fuse([[row] for row in counters], weights, [mean])
            into[i].copy_(mean)

    def total(self, values: Tensor) -> Tensor:
        summed = values.to(self._device)
        with self._naming("a sum over ranks"):
            dist.all_reduce(summed)
        return summed.to(values.device)

    def close(self) -> None:
        dist.destroy_process_group()
