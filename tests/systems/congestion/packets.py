"""Packets one by one on one link: what the fluid is held against. Drop-tail, first in, first out."""

from collections.abc import Sequence

import numpy as np


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
        self._now = self._next = self._free = 0.0
        self._under_way: list[tuple[float, float, bool]] = []  # when it is heard of, its round trip, whether it is lost

    def interval(self, rate_pps: float, seconds: float) -> dict[str, float]:
        """Sends at a rate; what was heard of in that time."""
        end = self._now + seconds
        while self._next < end:
            waits = max(0.0, self._free - self._next)
            dropped = self._random.random() < self._loss
            if not dropped:
                begins, here = np.interp([self._next + waits, self._next], self._times, self._carried)
                dropped = begins - here + 1.0 > self._queue
                if not dropped:
                    self._free = float(np.interp(begins + 1.0, self._carried, self._times))
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
