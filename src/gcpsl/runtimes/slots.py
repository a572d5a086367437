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
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from gcpsl import fusion
from gcpsl.errors import ConfigError, RanksError
from gcpsl.ranks import Meeting, own_workloads

NAP_S_MAX, LOOK_S, LINGER_S = 0.005, 0.5, 2.0
NEVER = "-"  # on no board
T = TypeVar("T")


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
        self._timeout_s, self._device, self._meetings = timeout_s, device, itertools.count()
        with self._naming("the start of the ranks"):
            attempt = self._agreed_attempt(store)
        self._store = c10d.PrefixStore(f"meetings/{attempt}", store)
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=c10d.PrefixStore(f"tensors/{attempt}", store),
            rank=self.rank,
            world_size=self.size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,  # connects now, and not in the first epoch
        )
        self._room: list[list[Tensor]] = []  # for what is received, kept for the next time
        self._neighbours: dict[int, int] = {}
        self._neighbours = self._on_this_host()
        self._workloads = [len(own_workloads(rank, self.size, workloads)) for rank in range(self.size)]
        self._first = sum(self._workloads[: self.rank])

    def _agreed_attempt(self, store: c10d.Store) -> str:
        """A name for these processes together: the store may hold all that earlier ones of the same ranks wrote.

        torchrun's count of restarts won't do. Each host has its own, and none counts that a host has come back. So the
        first rank makes a name up and tells it to each process, by that process's own name, until all have come.
        """
        own, others = uuid.uuid4().hex, range(1, self.size)
        if self.rank:
            store.set(f"hello/{self.rank}", own)
            attempt: str = store.get(own).decode()
            store.set(f"{attempt}/{self.rank}", own)
            return attempt
        started = time.monotonic()
        while late := [rank for rank in others if not store.check([f"{own}/{rank}"])]:
            if time.monotonic() - started > self._timeout_s:
                self._refuse_late(late, "the start of the ranks")
            for hello in [f"hello/{rank}" for rank in late]:
                if store.check([hello]):
                    store.set(store.get(hello).decode(), own)
            time.sleep(NAP_S_MAX)
        return own

    def meet(self, place: str, word: str = "") -> Meeting:
        number, started = next(self._meetings), time.monotonic()
        with self._naming(place):
            words = self._in_time(partial(self._words, number, word, started), place)
        if missing := [rank for rank, said in enumerate(words) if said is None]:
            self._refuse_late(missing, place)
        return Meeting(tuple(str(said) for said in words), time.monotonic() - started)

    def _in_time(self, ask: Callable[[], T], place: str) -> T:
        """What the store answers. Where its host is gone without a word, the store's own client would wait for ever."""
        answer: Future[T] = Future()

        def hear() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - it is raised below
                answer.set_exception(error)

        Thread(target=hear, daemon=True).start()
        try:
            return answer.result(self._timeout_s + LINGER_S)
        except TimeoutError:
            raise RanksError(
                f"rank {self.rank} heard nothing from the host of the store at {place} for {self._timeout_s:g} s: "
                "that host is lost or cut off"
            ) from None

    def _refuse_late(self, missing: Sequence[int], place: str) -> NoReturn:
        if self.rank == 0:
            time.sleep(LINGER_S)  # the store may live here, and the others have yet to look
        raise RanksError(
            f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} didn't come to {place} within "
            f"{self._timeout_s:g} s: the process hangs, is stopped or is cut off; raise runtime.timeout_s if it is "
            "only slow"
        )

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

        All write on one board. Only the first rank looks at it again and again, and tells the others when it is full.
        """
        board, full = f"{number}/board", f"{number}/full"
        self._store.append(board, json.dumps([self.rank, word]) + "\n")  # type: ignore[attr-defined] # torch has it
        looked = started
        while len(said := self._read(board)) < self.size:
            waited = time.monotonic() - started
            if waited > self._timeout_s:
                return [said.get(rank) for rank in range(self.size)]
            if time.monotonic() - looked > LOOK_S:
                self._look_for_the_dead(said)
                looked = time.monotonic()
            if self.rank == 0:
                time.sleep(min(NAP_S_MAX, waited / 50))
            else:
                self._wait_for(full)
        if self.rank == 0:
            self._store.set(full, "yes")
            for name in ("board", "full") if number else ():
                self._store.delete_key(f"{number - 1}/{name}")  # read by all, as they came to this one
        return [said[rank] for rank in range(self.size)]

    def _wait_for(self, key: str) -> None:
        """Until the store has it, or for a while."""
        try:
            self._store.wait([key], timedelta(seconds=min(LOOK_S, self._timeout_s)))
        except dist.DistStoreError:
            return

    def _read(self, board: str) -> dict[int, str]:
        """Who has come to a meeting, and what they said.

        An exchange of what isn't there gives the value in one round trip, without waiting; `get` takes two.
        """
        return dict(json.loads(line) for line in self._store.compare_set(board, NEVER, NEVER).splitlines())

    def _on_this_host(self) -> dict[int, int]:
        """The other ranks' processes that this one can see."""
        host = f"{socket.gethostname()} {Path('/proc/self/ns/pid').stat().st_ino}" if sys.platform == "linux" else ""
        said = [word.rpartition(" ") for word in self.meet("the start of the ranks", f"{host} {os.getpid()}").words]
        return {rank: int(pid) for rank, (where, _, pid) in enumerate(said) if where == host and rank != self.rank}

    def _look_for_the_dead(self, come: Container[int]) -> None:
        for rank, pid in self._neighbours.items():
            if rank not in come and not _alive(pid):
                raise RanksError(f"rank {rank} died (its process {pid} is gone)")

    def fuse(self, replicas: Sequence[Sequence[Tensor]], weights: Sequence[float], into: Sequence[Tensor]) -> None:
        """Each rank gets one slice of every replica, sums it in the replicas' order, and tells the others.

        That moves as much as an all-reduce of one replica per rank, and no sum depends on where replicas are. Slices go
        from where they lie.
        """
        if self.size == 1:
            fusion.fuse(replicas, weights, into)
            return
        peers = [rank for rank in range(self.size) if rank != self.rank]
        with self._naming("a fusion"):
            parts = self._exchange_parts(replicas, peers)
            fusion.fuse(parts, weights, self._part(into, self.rank))
            sends = [(rank, piece) for rank in peers for piece in self._slice(into, self.rank)]
            _exchange(sends, [(rank, piece) for rank in peers for piece in self._slice(into, rank)])

    def _exchange_parts(self, replicas: Sequence[Sequence[Tensor]], peers: Sequence[int]) -> list[list[Tensor]]:
        """Send everybody their part of this rank's replicas. Returns this rank's part of all replicas."""
        own = [self._part(replica, self.rank) for replica in replicas]
        foreign = [(rank, n) for rank in peers for n in own_workloads(rank, self.size, sum(self._workloads))]
        if [len(piece) for room in self._room[:1] for piece in room] != [len(piece) for piece in own[0]]:
            with torch.inference_mode(mode=False):  # to be written again outside of it
                self._room = [[torch.empty_like(piece) for piece in own[0]] for _ in foreign]
        theirs = {n: room for (_, n), room in zip(foreign, self._room, strict=True)}
        sends = [(rank, piece) for rank in peers for replica in replicas for piece in self._part(replica, rank)]
        _exchange(sends, [(rank, piece) for rank, n in foreign for piece in theirs[n]])
        return [theirs.get(n) or own[n - self._first] for n in range(sum(self._workloads))]

    def _part(self, buffers: Sequence[Tensor], rank: int) -> list[Tensor]:
        """What a rank fuses of these: a slice, and all counters, which are few and so need no second exchange."""
        return [*self._slice(buffers, rank), *(buffer for buffer in buffers if not buffer.is_floating_point())]

    def _slice(self, buffers: Sequence[Tensor], rank: int) -> list[Tensor]:
        """A rank's share of the floating-point buffers' elements: a piece, which may be empty, of each."""
        buffers = [buffer for buffer in buffers if buffer.is_floating_point()]
        length = sum(len(buffer) for buffer in buffers)
        start, stop = (length * r // self.size for r in (rank, rank + 1))
        pieces = []
        for buffer in buffers:
            pieces.append(buffer[max(0, start) : max(0, min(stop, len(buffer)))])
            start, stop = start - len(buffer), stop - len(buffer)
        return pieces

    def total(self, values: Tensor) -> Tensor:
        """In one exchange, where an all-reduce takes two: over a slow link that counts, and the values are few."""
        mine = values.to(self._device)
        everyones = [torch.empty_like(mine) for _ in range(self.size)]
        with self._naming("a sum over ranks"):
            dist.all_gather(everyones, mine)
        return torch.stack(everyones).sum(dim=0).to(values.device)

    def close(self) -> None:
        dist.destroy_process_group()
