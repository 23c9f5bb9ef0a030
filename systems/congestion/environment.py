"""Congestion control as a task file names it: randomised links, and the twin of a workload, its own link."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from feature_store.schema import Column
from models.control.contract.controller import RuleFamily
from models.control.contract.setting import Setting, filled
from models.control.contract.signals import Control
from models.control.simulation.recorded_load import RecordedLoad, recorded_load
from systems.congestion.equations import THROUGHPUT
from systems.congestion.interface import CONTROLS, MOST_PPS
from systems.congestion.links import GRID, MBPS, Links, draw_links, shared
from systems.congestion.rules import RULES
from systems.congestion.simulator import Congestion

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    Setting("base_rtt_ms", 50.0, "ms", 1.0, 4000.0, meaning="round trip without a queue"),
    Setting("queue_packets", 100.0, "packets", 1.0, 1e5, meaning="that the queue holds"),
    Setting("random_loss_share", 0.0, "share", 0.0, 0.5, meaning="packets that get lost without a queue"),
    Setting("most_queueing_s", 0.1, "s", 2.0**-10, 8.0, meaning="objective of the mean round trip beyond the least"),
)


class CongestionSystem(Congestion):
    """Implements `ControlledSystem`."""

    columns: Mapping[str, Column] = {"bandwidth_mbps": Column("Mbit/s", 0.0, None, "bandwidth of the link")}
    settings: Sequence[Setting] = SETTINGS
    telemetry: Path | None = Path(__file__).resolve().parents[2] / "data" / "loads" / "congestion.parquet"
    largest_reward = THROUGHPUT * MOST_PPS
    acting: str = "systems.congestion.acting"
    rules: Mapping[str, RuleFamily] = RULES

    def twin(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
             limits: Mapping[str, tuple[float, float]]) -> Congestion:
        """See `ControlledSystem.twin`: the bandwidth is replayed from some moment on, first rates and noise differ."""
        bandwidth = np.clip(telemetry["bandwidth_mbps"].to_numpy(dtype=np.float64) * MBPS, 1.0, MOST_PPS)
        recorded = recorded_load(bandwidth, telemetry, "bandwidth")
        known = {name: float(value) for name, value in filled(settings, SETTINGS).items()}
        controls = tuple(replace(one, low=low, high=high) for one in CONTROLS
                         for low, high in [limits.get(one.name, (one.low, one.high))])
        return _OneLink(recorded, known, controls, self.agents)

    def guarantees(self, model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                   limits: Mapping[str, tuple[float, float]]) -> Mapping[str, Any]:
        """See guarantee.py."""
        from systems.congestion.guarantee import guarantees

        return guarantees(properties, filled(settings, SETTINGS))


class _OneLink(Congestion):
    """A link whose bandwidth was recorded."""

    def __init__(self, bandwidth: RecordedLoad, known: Mapping[str, float], controls: tuple[Control, ...],
                 agents: int) -> None:
        super().__init__(controls, agents)
        self._bandwidth, self._known = bandwidth, known

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Links:
        """See `Environment`."""
        links = draw_links(split, count, steps + 3, seed, "aurora", applications)
        recorded = self._bandwidth.replayed(split, np.random.default_rng([seed, 5]), count, GRID)
        replayed = torch.tensor(recorded, dtype=torch.float32)
        first = replayed[0] * links.first_pps / links.bandwidth_pps[0]
        base_s, queue, loss, objective = (torch.full((count,), self._known[one.name]) for one in SETTINGS)
        links = replace(links, bandwidth_pps=replayed, grid_s=torch.full((count,), self._bandwidth.window_s),
                        base_s=1e-3 * base_s, queue_packets=queue, loss=loss, most_queueing_s=objective,
                        first_pps=first)
        return links if self.agents == 1 else shared(links, self.agents, seed)


ENVIRONMENT = CongestionSystem()
