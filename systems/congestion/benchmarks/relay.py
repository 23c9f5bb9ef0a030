"""The relay of a real link: carries IP packets between two network namespaces, each with a TUN device.

A process of its own (real_link.py starts it), which makes both namespaces and holds them by its files alone, so that
they go with it, however it ends. It ends where its standard input does.

    forward   drop-tail queue of `queue_packets`, each leaves at `bits_s` (of IP packets), then `delay_s`; a share
              `loss` of what comes is lost at random before the queue
    back      `delay_s` alone

It sleeps until the next packet is due, but for the last SPIN_S, in which it looks at the clock all the time.
Standard input: a line of JSON, `Path`; then any line asks for the report, a line of JSON on standard output (`Relay`).
"""

import ctypes
import fcntl
import gc
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path as File
from typing import Any

MTU = 1500
SENDER, RECEIVER = "10.99.0.1", "10.99.0.2"
SPIN_S = 100e-6
DROPPED, LOST = -1.0, -2.0  # waits of packets that never arrived
_BATCH = 32  # packets read from one device before it is looked whether another is due
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_TIMER_SLACK, _PRIORITY = 29, 1  # prctl's number; of the real-time class, above whatever else runs here
_BUFFERS = {"tcp_wmem": "4096 262144 16777216", "tcp_rmem": "4096 262144 16777216"}  # no window may be cut by them
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Path:
    """A link. bits_s: forward; delay_s: each way; loss: share, at random; seed: of the loss."""

    bits_s: float
    delay_s: float
    queue_packets: int
    loss: float = 0.0
    seed: int = 0


class Relay:
    """Carries packets between two devices and keeps what became of each.

    `flows`: by the port that it goes to, of each packet forward when it came, in s, how long it waited for others, in
    s, and its bytes; DROPPED for the wait of one that found the queue full, LOST of one lost at random.
    """

    def __init__(self, path: Path, sender: int, receiver: int) -> None:
        self.path, self._sender, self._receiver = path, sender, receiver
        self._random = random.Random(path.seed)
        self._forward: deque[tuple[float, bytes]] = deque()  # when it is handed over
        self._back: deque[tuple[float, bytes]] = deque()
        self._leaves: deque[float] = deque()  # of those in the queue, and of the one that is being sent
        self._free = 0.0
        self.flows: dict[int, list[tuple[float, float, int]]] = {}
        self.late_s: list[float] = []
        self.longest_bytes = self.refused = 0

    def report(self) -> dict[str, Any]:
        """As JSON, times since the clock's beginning; `late_s`: how much later than due packets were handed over."""
        return {"now_s": time.monotonic(), "flows": {str(port): one for port, one in self.flows.items()},
                "late_s": [round(one, 7) for one in self.late_s], "longest_bytes": self.longest_bytes,
                "refused": self.refused}

    def carry(self) -> None:
        """Until standard input ends."""
        asks = sys.stdin.fileno()
        watched = [self._sender, self._receiver, asks]
        while True:
            due = min((queue[0][0] for queue in (self._forward, self._back) if queue), default=None)
            now = time.monotonic()
            wait = None if due is None else max(due - now - SPIN_S, 0.0)
            ready, _, _ = select.select(watched, [], [], wait)
            if self._sender in ready:
                self._read(self._sender, self._enters)
            if self._receiver in ready:
                self._read(self._receiver, self._returns)
            self._hand_over(self._forward, self._receiver)
            self._hand_over(self._back, self._sender)
            if asks in ready:
                if not os.read(asks, 4096):
                    return
                print(json.dumps(self.report()), flush=True)

    def _read(self, device: int, take: Any) -> None:
        with suppress(BlockingIOError):
            for _ in range(_BATCH):
                packet = os.read(device, 65536)
                if packet[0] >> 4 == 4:  # whatever a device says of itself in IPv6 goes nowhere
                    take(packet, time.monotonic())

    def _returns(self, packet: bytes, now: float) -> None:
        self._back.append((now + self.path.delay_s, packet))

    def _enters(self, packet: bytes, now: float) -> None:
        size, header = len(packet), 4 * (packet[0] & 15)
        self.longest_bytes = max(self.longest_bytes, size)
        flow = self.flows.setdefault(int.from_bytes(packet[header + 2:header + 4], "big"), [])
        if self._random.random() < self.path.loss:
            flow.append((now, LOST, size))
            return
        leaves = self._leaves
        while leaves and leaves[0] <= now:
            leaves.popleft()
        if len(leaves) > self.path.queue_packets:  # one is being sent, the others wait
            flow.append((now, DROPPED, size))
            return
        begins = max(self._free, now)
        self._free = begins + 8 * size / self.path.bits_s
        leaves.append(self._free)
        flow.append((now, begins - now, size))
        self._forward.append((self._free + self.path.delay_s, packet))

    def _hand_over(self, queue: deque[tuple[float, bytes]], device: int) -> None:
        while queue:
            due, packet = queue[0]
            now = time.monotonic()
            if due - now > SPIN_S:
                return
            while now < due:
                now = time.monotonic()
            queue.popleft()
            try:
                os.write(device, packet)
            except OSError:  # nobody takes it
                self.refused += 1
            self.late_s.append(now - due)


def _namespace(own: str, other: str) -> tuple[int, int]:
    """A new network namespace, in which this process is then, and the TUN device in it."""
    if _LIBC.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace")
    held = os.open("/proc/self/ns/net", os.O_RDONLY)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"tun0", _IFF_TUN | _IFF_NO_PI))
    for name, value in _BUFFERS.items():
        File(f"/proc/sys/net/ipv4/{name}").write_text(value)
    for arguments in (["link", "set", "lo", "up"], ["link", "set", "tun0", "mtu", str(MTU), "txqueuelen", "10000"],
                      ["address", "add", own, "peer", other, "dev", "tun0"], ["link", "set", "tun0", "up"]):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)
    return held, device


def main() -> None:
    """Makes the namespaces, says where they are held, and carries."""
    path = Path(**json.loads(sys.stdin.readline()))
    try:
        (first, sender), (second, receiver) = _namespace(SENDER, RECEIVER), _namespace(RECEIVER, SENDER)
    except (OSError, subprocess.CalledProcessError) as error:
        print(json.dumps({"failed": f"{error}"}), flush=True)
        return
    gc.disable()  # it would stop for all packets that are kept, and finds nothing
    _LIBC.prctl(_TIMER_SLACK, 1, 0, 0, 0)
    with suppress(OSError):  # without the right to it, it is as good as the machine is idle
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    print(json.dumps({"namespaces": [first, second], "real_time": os.sched_getscheduler(0) == os.SCHED_FIFO,
                      **asdict(path)}), flush=True)
    Relay(path, sender, receiver).carry()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        main()
