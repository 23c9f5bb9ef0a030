"""What an application was deployed with, times a share, for ever: a control that a rule does not move.

Symbols: N applications.
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules.part import Numbers, Readings


class Deployed:
    """Keeps what was observed first, times `scale`."""

    source: ClassVar[str] = "no rule: a fixed request and replica count"
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("scale", 1.0, low=0.01, high=100.0, search=(0.25, 4.0), log=True,
                meaning="of what it was deployed with"),
    )
    signal: ClassVar[str]

    def __init__(self, values: Values) -> None:
        self._scale = values["scale"]

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._first = np.full(applications, np.nan)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) in the control's unit."""
        self._first = np.where(np.isnan(self._first), readings[self.signal], self._first)
        return self._first * self._scale


class DeployedCpu(Deployed):
    """A fixed CPU limit."""

    signal = "cpu_limit_cores"


class DeployedMemory(Deployed):
    """A fixed memory limit."""

    signal = "memory_limit_mib"


class DeployedReplicas(Deployed):
    """A fixed number of replicas."""

    signal = "replicas"
