"""A whole host is lost, with its torchrun and its rank, as by a power cut: the run goes on as docs/slots.md says.

Two torchruns on this machine are the two hosts; the first one's has the rendezvous store.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.launched import ends_as, free_port, torchrun

PATIENCE_S = 120


class Hosts:
    """`start` is what a service manager does when a host comes up."""

    def __init__(self, cwd: Path) -> None:
        self._cwd, self._port = cwd, free_port()
        self._started: list[subprocess.Popen[str]] = []

    def start(self, host: int, script: str, nodes: str = "2") -> subprocess.Popen[str]:
        flags = [
            f"--nnodes={nodes}",
            "--nproc-per-node=1",
            "--max-restarts=3",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self._port}",
            "--rdzv-id=seven",
            f"--rdzv-conf=is_host={1 - host},keep_alive_interval=1,join_timeout={PATIENCE_S},last_call_timeout=1",
            f"--local-addr=127.0.0.{1 + host}",
        ]
        env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "HOST": f"host-{host}", "SCRIPT": script}
        self._started.append(torchrun(self._cwd, flags, ["runtime.timeout_s=8"], **env))
        return self._started[-1]

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    opened = Hosts(tmp_path)
    yield opened
    opened.close()


def is_lost(process: subprocess.Popen[str]) -> None:
    assert process.wait(PATIENCE_S) == -signal.SIGKILL


def ends_well(process: subprocess.Popen[str]) -> str:
    """What it printed."""
    printed, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    return printed


def test_when_the_second_host_is_back_the_run_goes_on(hosts: Hosts, calm: Path, tmp_path: Path) -> None:
    script = "1 2 7 host"
    first, second = (hosts.start(host, script) for host in range(2))
    is_lost(second)
    assert first.stderr is not None
    heard = iter(first.stderr.readline, "")
    assert any("rank 1 didn't come to the barrier after round" in line for line in heard)
    second = hosts.start(1, script)
    printed = ends_well(first)
    assert "\nResuming after epoch 1\n" in printed
    ends_well(second)
    ends_as(calm, tmp_path / "runs" / "run")


def test_when_the_first_host_is_back_all_are_started_again_and_find_their_run(
    hosts: Hosts, calm: Path, tmp_path: Path
) -> None:
    script = "0 3 2 host"
    first, second = (hosts.start(host, script) for host in range(2))
    is_lost(first)
    second.communicate(timeout=PATIENCE_S)
    assert second.returncode not in (0, -signal.SIGKILL)
    first, second = (hosts.start(host, script) for host in range(2))
    assert ends_well(first).startswith("Resuming after epoch 2\n")
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["run"]
    ends_as(calm, tmp_path / "runs" / "run")


def test_when_the_second_host_is_never_back_the_first_may_go_on_alone(hosts: Hosts, calm: Path, tmp_path: Path) -> None:
    script = "1 4 1 host"
    first, second = (hosts.start(host, script, nodes="1:2") for host in range(2))
    is_lost(second)
    assert "\nResuming after epoch 3\n" in ends_well(first)
    ends_as(calm, tmp_path / "runs" / "run")
