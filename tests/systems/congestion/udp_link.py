"""A link on loopback that a sender's packets really go through: a rate, a delay, a queue; answers come back at once."""

import heapq
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from systems.congestion.receiver import ACK_BYTES


@contextmanager
def udp_link(bandwidth_pps: float, delay_s: float, queue_packets: int) -> Iterator[str]:
    """Yields HOST:PORT of a receiver behind the link."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as entry:
        entry.bind(("127.0.0.1", 0))
        entry.settimeout(0.002)
        stopped = threading.Event()
        thread = threading.Thread(target=_carry, args=(entry, stopped, bandwidth_pps, delay_s, queue_packets))
        thread.start()
        try:
            yield f"127.0.0.1:{entry.getsockname()[1]}"
        finally:
            stopped.set()
            thread.join()


def _carry(entry: socket.socket, stopped: threading.Event, bandwidth_pps: float, delay_s: float, queue: int) -> None:
    under_way: list[tuple[float, int, bytes, tuple[str, int]]] = []
    free, number = time.monotonic(), 0
    while not stopped.is_set():
        try:
            packet, sender = entry.recvfrom(65536)
            now = time.monotonic()
            free = max(free, now)
            if (free - now) * bandwidth_pps < queue:
                free += 1.0 / bandwidth_pps
                heapq.heappush(under_way, (free + delay_s, number, packet[:ACK_BYTES], sender))
                number += 1
        except TimeoutError:
            pass
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, answer, sender = heapq.heappop(under_way)
            entry.sendto(answer, sender)
