"""Recorded cellular links, as anybody's recording of a link is: the telemetry of a workload, and a twin of each.

The traces are those of mahimahi (github.com/ravinet/mahimahi, traces/), most of them recorded by Winstein, Sivaraman
and Balakrishnan (NSDI 2013): a line for each packet of 1,500 bytes that a link could carry, in milliseconds from the
beginning.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from feature_store.errors import InputError
from systems.congestion.environment import CongestionSystem
from systems.congestion.links import MBPS, Links
from systems.congestion.simulator import Congestion

WINDOW_S = 0.2
SETTINGS = {"base_rtt_ms": 40.0, "queue_packets": 250.0, "most_queueing_s": 0.1}


class Cellular(Congestion):
    """All traces in turns: the first seven tenths of each to train on.

    Args:
        folder: a checkout of mahimahi.

    Raises:
        InputError: it holds no traces.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        files = sorted([*folder.glob("traces/*.up"), *folder.glob("traces/*.down")])
        if not files:
            raise InputError(f"--mahimahi: expected a checkout of mahimahi, got no traces/*.up or *.down in {folder}")
        self.traces = tuple(file.name for file in files)
        self._twins = [CongestionSystem().twin(telemetry(file), SETTINGS, {}) for file in files]

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Links:
        """See `Environment`; at least as many as there are traces."""
        shares = np.bincount(np.arange(count) % len(self._twins))
        parts = [twin.draw(split, int(share), steps, seed + 1000 * place)
                 for place, (twin, share) in enumerate(zip(self._twins, shares, strict=True))]
        return Links(**{name: torch.cat([part.tensors()[name] for part in parts], dim=-1)
                        for name in parts[0].tensors()})


def telemetry(file: Path) -> pd.DataFrame:
    """A row a window, as `assay run --telemetry` takes it but for the names of workload and time."""
    carried = np.loadtxt(file) * 1e-3
    windows = np.bincount((carried / WINDOW_S).astype(int))[:-1]  # the last one is not whole
    return pd.DataFrame({"bandwidth_mbps": windows / WINDOW_S / MBPS, "window_s": WINDOW_S})
