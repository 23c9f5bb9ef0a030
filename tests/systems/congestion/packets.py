"""Packets one by one on one link: what the fluid is held against. Drop-tail, first in, first out."""

from collections.abc import Sequence

import numpy as np


class PacketLink:
    """PCC-RL's link: a packet waits for those before it, or is dropped where that is too long."""

    def __init__(self, bandwidth_pps: float, base_s: float, queue_packets: float, loss: float, seed: int = 0) -> None:
        self._bandwidth, self._base, self._most_s = bandwidth_pps, base_s, queue_packets / bandwidth_pps
        self._loss, self._random = loss, np.random.default_rng(seed)
        self._now = self._next = self._free = 0.0
        self._under_way: list[tuple[float, float, bool]] = []  # when it is heard of, its round trip, whether it is lost

    def interval(self, rate_pps: float, seconds: float) -> dict[str, float]:
        """Sends at a rate; what was heard of in that time."""
        end = self._now + seconds
        while self._next < end:
            waits = max(0.0, self._free - self._next)
            dropped = self._random.random() < self._loss
            if not dropped:
                dropped = waits + 1.0 / self._bandwidth > self._most_s
                if not dropped:
                    self._free = max(self._free, self._next) + 1.0 / self._bandwidth
            self._under_way.append((self._next + self._base + waits, self._base + waits, dropped))
            self._next += 1.0 / rate_pps
        heard = sorted(one for one in self._under_way if one[0] < end)
        self._under_way = [one for one in self._under_way if one[0] >= end]
        trips, times = ([one[place] for one in heard if not one[2]] for place in (1, 0))
        middle, self._now = self._now + 0.5 * seconds, end
        return {"acked": len(trips), "lost": len(heard) - len(trips), "rtt_s": _mean(trips),
                "slope": (_mean([trip for trip, at in zip(trips, times, strict=True) if at >= middle])
                          - _mean([trip for trip, at in zip(trips, times, strict=True) if at < middle])) / seconds}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
