"""A cable between two network namespaces with a delay and a rate, in user space: for kernels without netem.

`python slow_link.py NAMESPACE NAMESPACE DEVICE DEVICE DELAY_S BYTES_PER_S` makes a TUN device in each namespace and
carries packets from one to the other. It says "ready" once the devices are there, and ends with them when its standard
input is closed. Linux only, and needs root.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # from linux/if_tun.h
PACKET_BYTES_MAX, HEADER_BYTES = 1500, 14  # netem counts an Ethernet header to each packet
STANDARD_INPUT = 0
BURST_PACKETS = 64  # are read from one end before the other has its turn
WAITING_PACKETS = 2000  # are kept by the kernel when the relay is late


class Way:
    """One direction: packets leave the sender one after another at the rate, and arrive a delay later.

    As much may wait to leave as the link carries in two round trips; what comes on top is lost, as in a switch.
    """

    def __init__(self, delay_s: float, bytes_per_s: float) -> None:
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s
        self._wait_s_max = max(4 * delay_s, 100 * PACKET_BYTES_MAX / bytes_per_s)
        self._free_at = 0.0  # when all that waits will have left
        self._packets: deque[tuple[float, bytes]] = deque()

    def enter(self, packet: bytes, now: float) -> None:
        leaves_at = max(now, self._free_at)
        if leaves_at - now <= self._wait_s_max:
            self._free_at = leaves_at + (len(packet) + HEADER_BYTES) / self._bytes_per_s
            self._packets.append((self._free_at + self._delay_s, packet))

    def next_at(self) -> float:
        """When the next packet arrives; infinite where there is none."""
        return self._packets[0][0] if self._packets else math.inf

    def arrive(self, now: float, end: int) -> None:
        """Hand over what is due."""
        while self._packets and self._packets[0][0] <= now:
            os.write(end, self._packets.popleft()[1])


def open_end(namespace: str, device: str) -> int:
    """A TUN device in a namespace, up, of which this process holds the other side."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", device, "txqueuelen", str(WAITING_PACKETS), "netns", namespace], check=True)
    subprocess.run(["ip", "-n", namespace, "link", "set", device, "up"], check=True)
    return end


def relay(first: int, second: int, delay_s: float, bytes_per_s: float) -> None:
    """Carry packets until standard input is closed."""
    ways = ((first, Way(delay_s, bytes_per_s), second), (second, Way(delay_s, bytes_per_s), first))
    readable: list[int] = []
    while STANDARD_INPUT not in readable:
        wait_s = min(way.next_at() for _, way, _ in ways) - time.monotonic()
        timeout_s = None if wait_s == math.inf else max(0.0, wait_s)
        readable, _, _ = select.select((STANDARD_INPUT, first, second), (), (), timeout_s)
        now = time.monotonic()
        for source, way, target in ways:
            with suppress(BlockingIOError):
                for _ in range(BURST_PACKETS):
                    way.enter(os.read(source, PACKET_BYTES_MAX), now)
            way.arrive(now, target)


def main() -> None:
    names, devices, (delay_s, bytes_per_s) = sys.argv[1:3], sys.argv[3:5], map(float, sys.argv[5:])
    first, second = (open_end(name, device) for name, device in zip(names, devices, strict=True))
    print("ready", flush=True)
    relay(first, second, delay_s, bytes_per_s)


if __name__ == "__main__":
    main()
