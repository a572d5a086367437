"""Two hosts on one machine: network namespaces with an address each, and a link between them. Needs root and iproute2.

A link of full speed is a veth pair, and a slow one that pair with netem at both ends. Where the kernel has no netem,
both are the relay of `slow_link`, so that what a relay costs is in either.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HOSTS = {"gcpsl-a": "10.77.0.1", "gcpsl-b": "10.77.0.2"}
ENDS = ("cable-a", "cable-b")
FIRST = next(iter(HOSTS.values()))
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Link:
    """A delay each way and a rate; by a relay, or else a cable."""

    relayed: bool
    delay_s: float = 0.0
    bits_per_s: float = math.inf


CABLE = Link(relayed=False)


def quick_and_slow(delay_s: float, bits_per_s: float) -> tuple[Link, Link]:
    """Two links of the same kind."""
    relayed = not _kernel_has_netem()
    return Link(relayed), Link(relayed, delay_s, bits_per_s)


@dataclass
class Pair:
    """Both hosts, while there is a link between them."""

    relay: subprocess.Popen[str] | None
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, host: int, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        words = ["ip", "netns", "exec", list(HOSTS)[host], sys.executable, *command]
        own = {"GLOO_SOCKET_IFNAME": ENDS[host], "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        process = subprocess.Popen(words, env=os.environ | own | env, stdout=subprocess.PIPE, text=True)
        self._started.append(process)
        return process

    def on_both(self, command: Callable[[int], list[str]], env: Callable[[int], dict[str, str]]) -> list[str]:
        """What each host prints, when both have ended well."""
        processes = [self.start(host, command(host), env(host)) for host in range(len(HOSTS))]
        printed = [process.communicate()[0] for process in processes]
        assert all(process.returncode == 0 for process in processes)
        return printed

    def probe(self, size_bytes: int) -> dict[str, float]:
        """The round trip and the rate of one TCP connection, and the share of a core that the relay takes."""
        server = self.start(1, [str(HERE / "link_probe.py")], {})
        assert server.stdout is not None
        server.stdout.readline()
        busy_s = self._relay_cpu_s()
        asked = self.start(0, [str(HERE / "link_probe.py"), list(HOSTS.values())[1], str(size_bytes)], {})
        answer: dict[str, float] = json.loads(asked.communicate()[0])
        server.wait()
        transfer_s = 8 * size_bytes / answer["bits_per_s"]
        return answer | {"relay_share_of_a_core": round((self._relay_cpu_s() - busy_s) / transfer_s, 2)}

    def _relay_cpu_s(self) -> float:
        if self.relay is None:
            return 0.0
        fields = Path(f"/proc/{self.relay.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        for process in [*self._started, *([self.relay] if self.relay else [])]:
            process.kill()
            process.wait()


@contextmanager
def two_hosts(link: Link) -> Iterator[Pair]:
    """The hosts, joined; they are gone afterwards, with whatever still runs there."""
    pair = Pair(None)
    with _namespaces(*HOSTS):
        try:
            if link.relayed:
                rate = str(link.bits_per_s / 8)
                words = [sys.executable, str(HERE / "slow_link.py"), *HOSTS, *ENDS, str(link.delay_s), rate]
                pair.relay = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                assert pair.relay.stdout is not None
                assert pair.relay.stdout.readline(), "the relay didn't start"
            else:
                _join_by_cable(link)
            for (name, address), end in zip(HOSTS.items(), ENDS, strict=True):
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
                for device in (end, "lo"):
                    _ip("-n", name, "link", "set", device, "up")
            yield pair
        finally:
            pair.close()


def _join_by_cable(link: Link) -> None:
    names = list(HOSTS)
    _ip("link", "add", ENDS[0], "netns", names[0], "type", "veth", "peer", "name", ENDS[1], "netns", names[1])
    if link.delay_s:
        bytes_on_the_way = link.delay_s * link.bits_per_s / 8
        packets = 5 * bytes_on_the_way // 1500  # and in the queue, two round trips' worth
        slow = ["delay", f"{link.delay_s}s", "rate", f"{link.bits_per_s:.0f}bit", "limit", f"{packets:.0f}"]
        for name, end in zip(names, ENDS, strict=True):
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", end, "root", "netem", *slow], check=True)


def _kernel_has_netem() -> bool:
    name = "gcpsl-try"
    with _namespaces(name):
        words = ["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
        return subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode == 0


@contextmanager
def _namespaces(*names: str) -> Iterator[None]:
    try:
        for name in names:
            _ip("netns", "add", name)
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
