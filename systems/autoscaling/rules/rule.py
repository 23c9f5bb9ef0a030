"""A rule: one part for each control of the autoscaler, and for estimates, behind the contract of a controller.

What is missing or beyond a signal's range never reaches a part; what a part answers is finite and inside of the
control's bounds before it leaves. Limits on change are the environment's or the actuator's.

Symbols: N applications.
"""

from collections.abc import Mapping

import numpy as np

from feature_store.errors import InputError
from models.control.contract.controller import Array
from models.control.contract.setting import Values
from systems.autoscaling.interface import CONTROLS, SIGNALS
from systems.autoscaling.rules.part import Flags, Numbers, Part

PREFIXES = {"needed_cores": "demand", "target_cpu_limit_cores": "cpu", "target_memory_limit_mib": "memory",
            "target_replicas": "replicas"}
_BOUNDS = {control.name: control for control in CONTROLS}
_SET = {control.current for control in CONTROLS}
_SHARED = ("cpu_limit_cores", "memory_limit_mib", "ready_replicas")  # what utilizations are shares of


class Rule:
    """Acts on N applications through its parts."""

    def __init__(self, name: str, parts: Mapping[str, Part], values: Values) -> None:
        """A rule; rules.py makes them by name.

        Args:
            name: as tables name it.
            parts: control -> what sets it, in the order in which they are asked; what is no control is an estimate.
                Each finds what those before it gave among the readings, by its name.
            values: all settings, checked, as `settings` shows them.
        """
        self._name = name
        self._parts = parts
        self._values = values
        self._known: dict[str, Numbers] = {}
        self._before: dict[str, Numbers] = {}

    @property
    def name(self) -> str:
        """As tables and ledgers name it."""
        return self._name

    @property
    def settings(self) -> Mapping[str, float | str]:
        """All settings, defaults included. Raises InputError where they differ by application."""
        if any(value.ndim for value in self._values.values()):
            raise InputError(f"settings must be one value each to be written, got one for each application "
                             f"({self._name})")
        return {name: value.item() for name, value in self._values.items()}

    def start(self, applications: int) -> None:
        """Forgets everything. Raises InputError for settings of another number of applications."""
        for name, value in self._values.items():
            if value.ndim and len(value) != applications:
                raise InputError(f"setting must have one value, or one for each of {applications:,} applications, "
                                 f"got {len(value):,} ({self._name}, setting {name})")
        self._before = {name: np.full(applications, np.nan) for name in _SHARED}
        self._known = {control.current: np.full(applications, np.nan) for control in CONTROLS}
        for part in self._parts.values():
            part.start(applications)

    def act(self, observation: Mapping[str, Array], seconds: float) -> dict[str, Array]:
        """Targets from what is observed now (see Controller.act)."""
        readings = self._readings(observation)
        for name, part in self._parts.items():
            target = part.target(readings, seconds)
            if name in _BOUNDS:
                control = _BOUNDS[name]
                asked = np.where(np.isfinite(target), target, readings[control.current])
                target = np.minimum(np.maximum(asked, control.low), control.high)
            readings[name] = target
        return {control.name: readings[control.name] for control in CONTROLS}

    def _readings(self, observation: Mapping[str, Array]) -> dict[str, Numbers]:
        """Signals in their ranges, as part.py says; then what follows from them."""
        readings: dict[str, Numbers] = {}
        applications = len(self._known[CONTROLS[0].current])
        looked = np.zeros(applications, dtype=np.bool_)
        for signal in SIGNALS:
            raw = np.asarray(observation.get(signal.name, np.nan), dtype=np.float64)
            clipped = np.minimum(np.maximum(raw, signal.low), signal.high)
            readings[signal.name] = np.broadcast_to(np.where(np.isfinite(raw), clipped, np.nan), (applications,))
            if signal.name not in _SET:
                looked |= np.isfinite(raw)
        for control in CONTROLS:
            seen = readings[control.current]
            known = np.where(np.isnan(seen), self._known[control.current], seen)
            known = np.rint(known) if control.whole else known
            self._known[control.current] = known
            readings[control.current] = np.where(np.isnan(known), control.low, known)
        # An interval's mean is not whole while replicas start; half a replica is shown where none serves.
        ready = np.ceil(np.nan_to_num(readings["ready_replicas"], nan=np.inf) - 0.5)
        readings["ready_replicas"] = np.minimum(ready, readings["replicas"])
        self._measured_then(readings, looked)
        return readings

    def _measured_then(self, readings: dict[str, Numbers], looked: Flags) -> None:
        """Adds what was used in absolute numbers: metrics are an interval late, so shares are of the limits before.

        looked: (N,) whether this is a look. Where nothing is observed but what is set, a controller only tells what was
        deployed at the very first, and nothing will be a share of that.
        """
        now = {name: readings[name] for name in _SHARED}
        then = {name: np.where(np.isnan(before), now[name], before) for name, before in self._before.items()}
        self._before = {name: np.where(looked, now[name], before) for name, before in self._before.items()}
        per_replica = readings["cpu_utilization"] * then["cpu_limit_cores"]
        measured = then["ready_replicas"]
        readings["cpu_used_of_replica_cores"] = np.where(measured > 0, per_replica, np.nan)
        readings["cpu_used_cores"] = np.where(measured > 0, per_replica * measured, np.nan)
        readings["cpu_utilization"] = per_replica / now["cpu_limit_cores"]
        readings["memory_used_mib"] = readings["memory_utilization"] * then["memory_limit_mib"]
        readings["measured_replicas"] = np.minimum(measured, readings["replicas"])
