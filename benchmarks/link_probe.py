"""What a link does to TCP: `link_probe.py` waits on one host; `link_probe.py ADDRESS BYTES` on another prints JSON."""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time

PORT, PINGS, PIECE_BYTES = 29510, 20, 1 << 18


def receive(connection: socket.socket, size: int) -> None:
    room = memoryview(bytearray(PIECE_BYTES))
    while size:
        got = connection.recv_into(room[: min(size, PIECE_BYTES)])
        assert got, "the other side has gone"
        size -= got


def answer() -> None:
    """Send single bytes back, then take a transfer: the first quarter is TCP's to find the rate, the rest is timed."""
    with socket.create_server(("", PORT)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        with connection:
            for _ in range(PINGS):
                connection.sendall(connection.recv(1))
            size = int.from_bytes(connection.recv(8), "big")
            receive(connection, size // 4)
            started = time.perf_counter()
            receive(connection, size - size // 4)
            bits_per_s = 8 * (size - size // 4) / (time.perf_counter() - started)
            connection.sendall(int(bits_per_s).to_bytes(8, "big"))


def ask(address: str, size: int) -> None:
    round_trips_s = []
    with socket.create_connection((address, PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PINGS):
            started = time.perf_counter()
            connection.sendall(b".")
            connection.recv(1)
            round_trips_s.append(time.perf_counter() - started)
        connection.sendall(size.to_bytes(8, "big"))
        for start in range(0, size, PIECE_BYTES):
            connection.sendall(bytes(min(PIECE_BYTES, size - start)))
        bits_per_s = int.from_bytes(connection.recv(8), "big")
    print(json.dumps({"round_trip_s": statistics.median(round_trips_s), "bits_per_s": bits_per_s}))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        answer()
    else:
        ask(sys.argv[1], int(sys.argv[2]))
