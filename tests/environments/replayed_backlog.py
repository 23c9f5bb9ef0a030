"""The server with a queue as a user's own service: its recorded load can be replayed, on servers that do what they say.

With an efficiency of 1 and a load that never varies, what comes of a capacity is known in closed form.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from models.control.contract.own_service import Service
from tests.environments.backlog import Backlog, Episodes
from tests.environments.backlog_acting import CONTROLS

if TYPE_CHECKING:
    import pandas as pd

VARIATIONS = 2


class ReplayedBacklog(Backlog):
    """Implements `ControlledSystem` and `OwnServiceSystem`."""

    def begin(self, service: Service, tell: Callable[[str], None]) -> Mapping[str, str]:
        return {}

    def replay(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
               limits: Mapping[str, tuple[float, float]], *, bounded: bool = True) -> tuple[Backlog, Episodes]:
        rate = torch.tensor(telemetry["rate_rps"].to_numpy(), dtype=torch.float32)[:, None].repeat(1, VARIATIONS)
        low, high = limits.get("target_capacity_rps", (1.0, 256.0)) if bounded else (1.0, 256.0)
        environment = Backlog(controls=tuple(replace(one, low=low, high=high) for one in CONTROLS))
        ones = torch.ones(VARIATIONS)
        return environment, Episodes(rate, ones, ones * float(settings.get("slo_s", 2.0)), rate.mean(dim=0),
                                     torch.arange(VARIATIONS))


ENVIRONMENT = ReplayedBacklog()
