"""A sender of packets over UDP that paces them at a rate, and measures by what comes back: actuator and reader in one.

    assay control --actuator systems.congestion.sender --controller sender.yaml ...

    sender:                        # its part of the controller's file
      to: 10.0.0.2:9000            # where receiver.py answers
      first_rate_pps: 50
      packet_bytes: 1472           # of UDP's payload; with its headers a packet of 1,500 bytes

A packet carries a number and its time; its first bytes come back (receiver.py). One thread sends, one hears. A packet
counts as lost where one that was sent REORDERED packets or later came back before it, as in RFC 9002, section 6.1.1,
or after SILENT_S without any answer, LATE_ROUND_TRIPS of the latest round trip where that is longer (RFC 6298). An
interval is what was heard since it was read last.
"""

import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from feature_store.errors import InputError, SourceError
from models.control.contract.derived_signals import NUMBERS
from serving.actuators.actuator import ActuatorError, Applied
from serving.actuators.kind import ActuatorKind
from serving.contract import Contract
from serving.control.file_part import FilePart
from serving.control.parts import Readings
from systems.congestion import equations as law
from systems.congestion.interface import MOST_PPS
from systems.congestion.receiver import ACK_BYTES, address

REORDERED, LATE_ROUND_TRIPS = 3, 2.0
FIRST_INTERVAL_S = 0.1  # before a round trip is known
SILENT_S = 1.0  # without an acknowledgement, the least that counts as a timeout (RFC 6298, section 2.4)
_HEADER = struct.Struct("!QQQ")  # which sender, which packet, when, ns
_MOST_BEHIND_S = 0.005  # of pacing: what could not be sent in time is not sent in a burst later
_DOWN = 0.5  # of the rate, where nothing is heard: as on a retransmission timeout (RFC 5681, section 3.1)


@dataclass(frozen=True)
class Target:
    """Where packets go, and how the first of them are paced."""

    to: tuple[str, int]
    first_rate_pps: float
    packet_bytes: int


class Sender:
    """Implements `Actuator` and `Reader`; sends from the moment on that it has the lease."""

    def __init__(self, target: Target) -> None:
        self._target, self._rate_pps = target, target.first_rate_pps
        self._id = 0  # given at `acquire`
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._sent: deque[tuple[int, float]] = deque()  # number and time of what nobody has heard of, in order
        self._trips: list[tuple[float, float]] = []  # when it came back, and its round trip, since the last reading
        self._acked_early: set[int] = set()
        self._lost = 0
        self._rtt_s, self._least = 0.0, law.LeastRoundTrip()
        self._read_s = self._heard_s = self._slowed_s = time.monotonic()
        self._threads: list[threading.Thread] = []
        self.total_sent = self.total_acked = self.total_lost = 0

    @property
    def name(self) -> str:
        """See `Actuator`."""
        return f"sender to {self._target.to[0]}:{self._target.to[1]}"

    @property
    def interval_s(self) -> float | None:
        """See `Reader`: half the least round trip."""
        least_s = self._least.seconds
        return FIRST_INTERVAL_S if least_s is None else law.interval(least_s, self._rate_pps, NUMBERS)

    def present(self) -> Mapping[str, float]:
        """See `Actuator`."""
        return {"rate_pps": self._rate_pps}

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`."""
        if set(targets) != {"target_rate_pps"} or not 0 < targets["target_rate_pps"] <= MOST_PPS:
            raise ActuatorError("refused", f"target_rate_pps must be a rate up to {MOST_PPS:g} 1/s, got "
                                           f"{dict(targets)}")
        self._rate_pps = float(targets["target_rate_pps"])
        return Applied(dict(targets))

    def acquire(self, holder: str) -> str:
        """See `Actuator`. Nobody else can pace this socket."""
        if not self._threads:
            self._stopped.clear()
            # of another time: its numbers come again
            self._id, self._lost, self._rtt_s = int.from_bytes(os.urandom(8)), 0, 0.0
            self._least = law.LeastRoundTrip()
            for kept in (self._sent, self._trips, self._acked_early):
                kept.clear()
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
                opened.connect(self._target.to)
            except OSError as error:
                opened.close()
                raise ActuatorError("unreachable", f"{self.name}: expected an address to send to, got {error}") \
                    from error
            self._read_s = self._heard_s = self._slowed_s = time.monotonic()
            self._threads = [threading.Thread(target=one, args=(opened,), daemon=True)
                             for one in (self._send, self._hear)]
            for thread in self._threads:
                thread.start()
            self._socket = opened
        return ""

    def release(self, holder: str) -> None:
        """See `Actuator`: without a controller nothing is sent."""
        if self._threads:
            self._stopped.set()
            for thread in self._threads:
                thread.join()
            self._threads = []
            self._socket.close()

    def restore(self, *, lowering: bool = True) -> None:
        """See `Actuator`: there was no rate before it."""

    def read(self) -> Readings:
        """See `Reader`."""
        with self._lock:
            now = time.monotonic()
            self._give_up(now)
            if not self._trips:  # what was lost is told with what comes back next
                silent_s = now - self._heard_s
                if now - self._slowed_s > SILENT_S and silent_s > SILENT_S:
                    self._rate_pps, self._slowed_s = max(1.0, _DOWN * self._rate_pps), now
                raise SourceError(f"expected acknowledgements, got none for {silent_s:.2g} s ({self.name})")
            trips, self._trips = self._trips, []
            lost, self._lost = self._lost, 0
            seconds, began, self._read_s = now - self._read_s, self._read_s, now
        self._rtt_s = sum(trip for _, trip in trips) / len(trips)
        middle = began + 0.5 * seconds
        halves = [[trip for at, trip in trips if (at >= middle) == late] for late in (False, True)]
        slope = 0.0
        if all(halves):
            early, late = (sum(half) / len(half) for half in halves)
            slope = min(max((late - early) / seconds, -1.0), 1.0)
        least_s = self._least.heard(self._rtt_s, self._rate_pps, seconds)
        return Readings({"acked_pps": len(trips) / seconds, "rtt_s": self._rtt_s, "min_rtt_s": least_s,
                         "rtt_slope": slope,
                         "loss_share": lost / (lost + len(trips)), "interval_s": seconds})

    def _send(self, opened: socket.socket) -> None:
        payload = bytearray(self._target.packet_bytes)
        number, due = 0, time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            if now < due:
                time.sleep(min(due - now, 0.05))
                continue
            due = max(due + 1.0 / self._rate_pps, now - _MOST_BEHIND_S)
            _HEADER.pack_into(payload, 0, self._id, number, time.monotonic_ns())
            with self._lock:
                self._sent.append((number, now))
            with suppress(OSError):  # nobody listens, or no room: it counts as lost
                opened.send(payload)
            self.total_sent += 1
            number += 1

    def _hear(self, opened: socket.socket) -> None:
        while not self._stopped.is_set():
            if not select.select([opened], [], [], 0.1)[0]:
                continue
            try:
                answer = opened.recv(2 * ACK_BYTES)
            except OSError:
                continue
            if len(answer) < ACK_BYTES:
                continue
            sender, number, sent_ns = _HEADER.unpack_from(answer)
            if sender == self._id:
                with self._lock:
                    self._acknowledged(number, (time.monotonic_ns() - sent_ns) * 1e-9)

    def _acknowledged(self, number: int, trip_s: float) -> None:
        if not self._sent or number < self._sent[0][0] or number in self._acked_early or number > self._sent[-1][0]:
            return  # it was given up, came twice, or was never sent
        self._heard_s = time.monotonic()
        self._trips.append((self._heard_s, trip_s))
        self.total_acked += 1
        self._acked_early.add(number)
        self._forget(lambda first, _: first in self._acked_early or first <= number - REORDERED)

    def _give_up(self, now: float) -> None:
        patience = max(LATE_ROUND_TRIPS * self._rtt_s, SILENT_S)
        if now - self._heard_s > patience:
            self._forget(lambda _, sent_s: now - sent_s > patience)

    def _forget(self, known: Callable[[int, float], bool]) -> None:
        """Takes the oldest packets away of which is known what became of them."""
        while self._sent and known(*self._sent[0]):
            number, _ = self._sent.popleft()
            if number in self._acked_early:
                self._acked_early.remove(number)
            else:
                self._lost += 1
                self.total_lost += 1


def _read(part: FilePart) -> Target:
    part.only(("to", "first_rate_pps", "packet_bytes"))
    try:
        to = address(part.text("to"))
    except ValueError as error:
        raise InputError(f"sender.to must be HOST:PORT: {error}") from error
    size, first = part.whole("packet_bytes", 1472), part.number("first_rate_pps", 50.0, least=1.0)
    if not ACK_BYTES < size <= 65000 or first > MOST_PPS:
        raise InputError(f"sender must have packet_bytes from {ACK_BYTES + 1} to 65000 and a first_rate_pps up to "
                         f"{MOST_PPS:g}, got {size} and {first:g}")
    return Target(to, first, size)


def _make(target: Target, contract: Contract | None, held: Collection[str]) -> Sender:
    return Sender(target)


ACTUATOR = ActuatorKind("sender", "say where the receiver is (to)", _read, _make, gives_back=True, keeps=False,
                        measures=True)
