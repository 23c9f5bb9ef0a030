"""Packets one by one on one link: what the fluid is held against. Drop-tail, first in, first out."""

from collections.abc import Sequence

import numpy as np

Heard = tuple[float, float, bool, int]  # when it is heard of, its round trip, whether it is lost, whose it was


class PacketLink:
    """PCC-RL's link: a packet waits for those before it, or is dropped where that is too long."""

    def __init__(self, bandwidth_pps: float | Sequence[float], base_s: float, queue_packets: float, loss: float,
                 seed: int = 0, grid_s: float = 1e6) -> None:
        """bandwidth_pps: of each place of a grid in time, from whose end on the last one stays."""
        bandwidths = [*np.atleast_1d(bandwidth_pps), np.atleast_1d(bandwidth_pps)[-1]]
        self._times = np.array([*(grid_s * place for place in range(len(bandwidths))), 1e9])
        self._carried = np.array([0.0, *np.cumsum(bandwidths * np.diff(self._times))])
        self._base, self._queue = base_s, queue_packets
        self._loss, self._random = loss, np.random.default_rng(seed)
        self._now = self._free = 0.0
        self._next = [0.0]  # of each sender
        self._under_way: list[Heard] = []

    def interval(self, rate_pps: float, seconds: float) -> dict[str, float]:
        """Sends at a rate; what was heard of in that time."""
        return self.together([rate_pps], seconds)[0]

    def together(self, rates_pps: Sequence[float], seconds: float) -> list[dict[str, float]]:
        """Several senders, each at its rate; what each heard of in that time."""
        end = self._now + seconds
        self._next += [self._now] * (len(rates_pps) - len(self._next))
        while min(self._next) < end:
            sender = int(np.argmin(self._next))
            at = self._next[sender]
            waits = max(0.0, self._free - at)
            dropped = self._random.random() < self._loss
            if not dropped:
                begins, here = np.interp([at + waits, at], self._times, self._carried)
                dropped = begins - here + 1.0 > self._queue
                if not dropped:
                    self._free = float(np.interp(begins + 1.0, self._carried, self._times))
            self._under_way.append((at + self._base + waits, self._base + waits, dropped, sender))
            self._next[sender] += 1.0 / rates_pps[sender]
        heard = sorted(one for one in self._under_way if one[0] < end)
        self._under_way = [one for one in self._under_way if one[0] >= end]
        begun, self._now = self._now, end
        return [self._told([one for one in heard if one[3] == sender], begun, seconds)
                for sender in range(len(rates_pps))]

    @staticmethod
    def _told(heard: Sequence[Heard], begun: float, seconds: float) -> dict[str, float]:
        trips, times = ([one[place] for one in heard if not one[2]] for place in (1, 0))
        middle = begun + 0.5 * seconds
        return {"acked": len(trips), "lost": len(heard) - len(trips), "rtt_s": _mean(trips),
                "slope": (_mean([trip for trip, at in zip(trips, times, strict=True) if at >= middle])
                          - _mean([trip for trip, at in zip(trips, times, strict=True) if at < middle])) / seconds}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
