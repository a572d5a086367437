"""Work on the device, done once to capture it and then replayed; on the CPU it is called instead.

Knows nothing of what the work is. Work of one lane is replayed in order, lanes may overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Work = Callable[[], None]
FIRST = -1  # a stream's priority, where 0 is the usual one


class Graphs:
    """Captured work by (lane, variant). `draws` tells whether any of it draws random numbers."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._replays: dict[tuple[int, int], Work] = {}
        self._pools: dict[int, Any] = {}
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._peaks: dict[int, int] = {}
        self.draws = device.type == "cpu"

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._replays

    @property
    def bytes_held(self) -> int:
        """What all lanes' intermediate values take."""
        return sum(self._peaks.values())

    def capture(self, key: tuple[int, int], work: Work) -> None:
        """Do the work once, and keep it. Raises what PyTorch raises where that can't be done."""
        if self._device.type == "cpu":
            work()
            self._replays[key] = work
            return
        lane, current = key[0], torch.cuda.current_stream(self._device)
        # above the streams beside it, so that what the next kernel waits for is not held up by what nobody waits for
        stream = self._streams.setdefault(lane, torch.cuda.Stream(self._device, priority=FIRST))
        pool = self._pools.setdefault(lane, torch.cuda.graph_pool_handle())
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        offset = generator.get_offset()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            work()
        current.wait_stream(stream)
        torch.cuda.synchronize(self._device)
        self.draws |= generator.get_offset() != offset
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            work()
        peak = torch.cuda.max_memory_allocated(self._device) - before
        self._peaks[lane] = max(peak, self._peaks.get(lane, 0))
        self._replays[key] = graph.replay

    def replay(self, key: tuple[int, int]) -> None:
        """In the current stream, after and before what else is there."""
        self._replays[key]()

    def replay_beside(self, key: tuple[int, int]) -> None:
        """In the lane's own stream, unless lanes would draw their random numbers from one state; see `join`."""
        if self.draws:
            self.replay(key)
            return
        stream = self._streams[key[0]]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self.replay(key)

    def join(self) -> None:
        """What comes after waits for what was replayed beside."""
        if not self.draws:
            for stream in self._streams.values():
                torch.cuda.current_stream(self._device).wait_stream(stream)
