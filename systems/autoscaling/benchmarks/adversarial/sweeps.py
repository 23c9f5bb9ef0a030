"""What policies set while one signal goes through a range and all else stays as in an adversarial state."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.control.policy.policy import PolicyShape
from systems.autoscaling.benchmarks.adversarial.demands import Array, Row, set_targets
from systems.autoscaling.benchmarks.adversarial.worst import ExportedPolicy, Violation

POINTS = 61
_DIGITS = 5
# Signal that a demand on one state turns on, by demand; of what is idle by the target's own utilisation.
SIGNALS = {"latency": "p99_ms", "served": "served_share", "load": "rate_rps", "missed": "p99_ms",
           "hold": "raised_s_ago", "quarter": "p99_ms"}
_RANGES = {"raised_s_ago": (15.0, 120.0), "served_share": (0.4, 1.0)}
_SHARE = (0.02, 1.0)


def sweep(policies: Mapping[str, ExportedPolicy], row: Row, found: Violation) -> dict[str, Any]:
    """{"signal", "values" (q,), form: (q,) targets as they are set}."""
    shape = policies["plain"].shape
    name = signal_of(row)
    values = _values(shape, name, found.states)
    line = np.repeat(found.states[:1], len(values), axis=0)
    line[:, shape.column(name)] = values
    column = shape.controls.index(row.control)
    commanded = {form: set_targets(shape, policy.targets(line))[:, column] for form, policy in policies.items()}
    return {"signal": name, "values": _short(values), **{form: _short(one) for form, one in commanded.items()}}


def signal_of(row: Row) -> str:
    """What is swept."""
    if row.demand == "idle":
        return "memory_utilization" if row.control.name == "target_memory_limit_mib" else "cpu_utilization"
    return SIGNALS[row.demand]


def _values(shape: PolicyShape, name: str, states: Array) -> Array:
    """(q,): p99 from half to twice the objective, load likewise about its mean of a minute; in any case beyond the
    states themselves."""
    signal = shape.signals[shape.column(name)]
    own = states[:, shape.column(name)]
    about = {"p99_ms": "slo_ms", "rate_rps": "rate_1min_rps"}.get(name)
    if about is not None:
        middle = states[0, shape.column(about)]
        low, high = min(0.5 * middle, own.min() / 1.25), max(2.0 * middle, own.max() * 1.25)
        return np.geomspace(max(low, signal.low), min(high, signal.high), POINTS)
    low, high = _RANGES.get(name, _SHARE)
    return np.linspace(min(low, own.min()), max(high, own.max()), POINTS)


def _short(values: Array) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values.tolist()]
