"""What acts on the server with a queue (backlog.py) beside a live one: its signals, an observer, a rule. No torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.control.contract.controller import Array, RuleFamily
from models.control.contract.observer import finite_state
from models.control.contract.setting import Setting, Value, checked
from models.control.contract.signals import Control, Signal

STEP_S, TICK = 10.0, 0.0625
SIGNALS = (
    Signal("capacity_rps", "1/s", 1.0, 256.0, "log", "requests a second that were asked for"),
    Signal("rate_rps", "1/s", 0.25, 256.0, "log", "requests that came, a second"),
    Signal("mean_rate_rps", "1/s", 0.25, 256.0, "log", "its exponential mean over a minute"),
    Signal("wait_s", "s", TICK, 64.0, "log", "wait of the last request"),
    Signal("slo_s", "s", 0.25, 16.0, "log", "objective of the wait"),
)
CONTROLS = (Control("target_capacity_rps", "capacity_rps", "1/s", 1.0, 256.0, 0.25, 1.0, meaning="requests a second"),)
WEIGHT = 0.15  # of a step's rate in the mean


class BacklogObserver:
    """Implements `Observer`: the mean of the rate."""

    measured = ("rate_rps", "wait_s")
    guessed = ()

    def __init__(self) -> None:
        self._mean = math.nan

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        rate = float(measured.get("rate_rps", math.nan))
        if math.isfinite(rate):
            kept = (1.0 - WEIGHT) ** (max(seconds, 0.0) / STEP_S)
            self._mean = rate + kept * (self._mean - rate) if math.isfinite(self._mean) else rate
        return {"capacity_rps": float(present.get("capacity_rps", math.nan)), "rate_rps": rate,
                "mean_rate_rps": self._mean, "wait_s": float(measured.get("wait_s", math.nan))}

    def acted(self, values: Mapping[str, float]) -> None:
        pass

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        over = observation["wait_s"] / observation["slo_s"]
        cost = observation["capacity_rps"] / observation["mean_rate_rps"]
        if not (math.isfinite(over) and math.isfinite(cost)):
            return dict.fromkeys(("reward", "cost", "violation", "violated"), math.nan)
        used = min(observation["rate_rps"] / observation["capacity_rps"], 1.0)
        return {"reward": 0.5 * min(1.0 / over, 1.0) + 0.5 * used, "cost": cost,
                "violation": max(math.log(over), 0.0), "violated": float(over > 1.0)}

    def state(self) -> dict[str, float]:
        return {"mean_rate_rps": self._mean}

    def restore(self, state: Mapping[str, float]) -> None:
        self._mean = finite_state(state, ("mean_rate_rps",), nullable=("mean_rate_rps",))["mean_rate_rps"]


class Headroom:
    """A rule: capacity in proportion to the load, doubled while the objective is missed."""

    declared = (Setting("factor", 1.5, low=0.5, high=10.0, search=(0.8, 3.0), meaning="of the load"),)

    def make(self, settings: Mapping[str, Value]) -> "HeadroomController":
        return HeadroomController(checked(settings, self.declared, "headroom")["factor"])


@dataclass
class HeadroomController:
    """Implements `Controller`."""

    factor: Array
    name: str = "headroom"

    @property
    def settings(self) -> Mapping[str, float | str]:
        return {"factor": float(self.factor)}

    def start(self, applications: int) -> None:
        pass

    def act(self, observation: Mapping[str, Array], seconds: float) -> dict[str, Array]:
        late = observation["wait_s"] > observation["slo_s"]
        wanted = self.factor * np.nan_to_num(observation["rate_rps"], nan=256.0) * np.where(late, 2.0, 1.0)
        return {"target_capacity_rps": wanted}


OBSERVER = BacklogObserver
RULES: Mapping[str, RuleFamily] = {"headroom": Headroom()}
