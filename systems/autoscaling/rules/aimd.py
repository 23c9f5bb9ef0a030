"""Additive increase, multiplicative decrease of a resource by the 99th percentile of latency, and the reverse.

The rival of FIRM (thesis, section 3.4, "an AIMD-based method [52, 53] to manage resources for each container": Stuedli
et al., CDC 2015) adds to a limit where the latency is above its target and takes a share away where it is below; with
`mode` MIAD it multiplies on the way up and subtracts on the way down, as mu-Serve does (thesis, section 6.3.4). From
`p99_low` of the target up to the target nothing moves.

Symbols: N applications.
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules.part import Numbers, Readings

DECLARED = (
    Setting("mode", "AIMD", "", choices=("AIMD", "MIAD"), searched=True,
            meaning="which way adds and which multiplies"),
    Setting("p99_target", 0.8, low=0.01, high=10.0, search=(0.2, 1.2),
            meaning="p99 over the objective; above it: more"),
    Setting("p99_low", 0.8, low=0.0, high=1.0, search=(0.3, 1.0), meaning="of the target; below it: less"),
    Setting("increase", 0.25, high=10.0, search=(0.05, 2.0), log=True,
            meaning="added on the way up: AIMD in the control's unit, MIAD a share"),
    Setting("decrease", 0.1, high=1.0, search=(0.005, 0.3), log=True,
            meaning="taken on the way down: AIMD a share, MIAD in the control's unit"),
    Setting("wait_s", 60.0, "s", 0.0, 3600.0, (15.0, 300.0), log=True, meaning="after a change, before the next down"),
)


class Aimd:
    """Moves one control."""

    source: ClassVar[str] = "thesis, sections 3.4 and 6.3.4; Chiu and Jain 1989"
    declared: ClassVar[tuple[Setting, ...]] = DECLARED
    signal: ClassVar[str]

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._changed = np.full(applications, -np.inf)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) in the control's unit."""
        values, current = self._values, readings[self.signal]
        ratio = readings["p99_ms"] / readings["slo_ms"]
        additive = values["mode"] == "AIMD"
        up = np.where(additive, current + values["increase"], current * (1.0 + values["increase"]))
        down = np.where(additive, current * (1.0 - values["decrease"]), current - values["decrease"])
        above = ratio > values["p99_target"]
        below = (ratio < values["p99_low"] * values["p99_target"]) & (seconds - self._changed >= values["wait_s"])
        self._changed = np.where(above | below, seconds, self._changed)
        return np.where(above, self._whole(up, np.ceil), np.where(below, self._whole(down, np.floor), current))

    def _whole(self, numbers: Numbers, rounded: np.ufunc) -> Numbers:
        return numbers


class AimdCpu(Aimd):
    """Moves the CPU limit."""

    signal = "cpu_limit_cores"


class AimdReplicas(Aimd):
    """Moves the replicas, in whole numbers away from where they are."""

    signal = "replicas"

    def _whole(self, numbers: Numbers, rounded: np.ufunc) -> Numbers:
        result: Numbers = rounded(numbers)
        return result
