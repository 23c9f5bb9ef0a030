"""What an exported policy guarantees in the closed loop with the fluid law: a few quick ones, for a run's report.

A workload that runs a recorded server has its CPU time and memory; others have what the task file says. The assumptions
are those of in_fluid_law.py.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.environments.autoscaling.in_fluid_law import Service, law_of, scaler_of
from models.environments.autoscaling.interface import CONTROLS
from models.environments.autoscaling.twin import RECORDED, SETTINGS
from models.verification.checker.chain import read_chain
from models.verification.closed_loop.catching_up import KEPT, ROUNDED_DOWN
from models.verification.closed_loop.scaler_guarantee import check_scaler_guarantee, scaler_guarantee

# Cores a step; cores of load; CPU limits and replicas of the law, of which the upper ones are the task file's; B and v0
# in core seconds, headroom in cores; for the proofs of all changes.
CHANGES = (0.0, 0.0025, 0.005)
LOAD, LIMITS, REPLICAS = (1.0, 5.0), (0.5, 2.0), (2, 32)
START, THRESHOLD, HEADROOM, SECONDS = 60.0, 4.0, 0.5, 45.0
ASSUMED = ("A core works off a core second a second, replicas serve at once, metrics are those of the last step and "
           "exact, memory stays as it is set, disk and network idle, the load has changed no faster for half an hour. "
           "It rests on the orders that are proved of the file itself: more latency never means less, and nothing is "
           "taken away while the objective is missed.")
_FEW, _MOST = 4, 1e9  # replicas of which one may always go; no limit
# target -> (what is set at present, by how much an order may be missed, least present value of the law)
_TARGETS = {"target_cpu_limit_cores": ("cpu_limit_cores", KEPT, LIMITS[0]),
            "target_replicas": ("replicas", ROUNDED_DOWN, REPLICAS[0])}


def missing(properties: Sequence[Mapping[str, Any]]) -> str:
    """What a specification (its `properties`, written out) lacks for a guarantee to rest on it; "": nothing."""
    monotone = {(name, one["monotone"]["direction"], one["monotone"]["output"]) for one in properties
                if "monotone" in one for name in one["monotone"]["features"]}
    orders = [one["order"] for one in properties if "order" in one]
    most = {control.name: control.high for control in CONTROLS}
    for target, (current, margin, least) in _TARGETS.items():
        for name, direction in (("p99_ms", "increasing"), ("served_share", "decreasing")):
            if (name, direction, target) not in monotone:
                return f"{target} must be monotone in {name} ({direction})"
        of = [one for one in orders if (one["upper"], one["lower"]) == (target, current)]
        kept = [one for one in of if one.get("at_least", {}) == {"p99_ms": "slo_ms"}]
        if not _covered(_ranges(kept, current, 1.0, margin), least, most[target]):
            return f"{target} must not be below {current} while the objective is missed"
        free = [one for one in of if not one.get("at_least")]
        few = _ranges(free, current, 1.0, 1.0 + ROUNDED_DOWN) if target == "target_replicas" else []
        ranges = [*_ranges(free, current, 0.75, margin), *(one for one in few if one[1] <= _FEW)]
        if not _covered(ranges, least, most[target]):
            return f"{target} must keep 75 % of {current}, or all but one of up to {_FEW}"
    return ""


def _ranges(orders: Sequence[Mapping[str, Any]], current: str, factor: float, margin: float
            ) -> list[tuple[float, float]]:
    """Present values for which one of the orders holds with that factor and margin at least."""
    conditions = [one.get("when") or {} for one in orders if one["factor"] >= factor and one["margin"] >= -margin]
    return [tuple(when.get(current, (0.0, _MOST))) for when in conditions if set(when) <= {current}]


def _covered(ranges: Sequence[tuple[float, float]], least: float, most: float) -> bool:
    """Whether ranges cover all present values from `least` to `most`."""
    for low, high in sorted(ranges):
        if low <= least:
            least = max(least, high)
    return least >= most


def service_of(settings: Mapping[str, float | str]) -> Service:
    """Of what a task file says of a workload."""
    default = {setting.name: setting.default for setting in SETTINGS}
    server = RECORDED.get(str(settings.get("server", "")), {})
    said = {name: settings.get(name, server.get(name, default[name])) for name in ("cpu_ms", "memory_mib", "slo_ms")}
    return Service(**{name: float(value) for name, value in said.items()})


def autoscaling_guarantees(model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                           limits: Mapping[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """One for each of CHANGES up to the first that is not proved, as plain values; what is PROVED was checked again.

    Args:
        model: the exported file.
        properties: what is proved of it (specification.yaml).
        settings, limits: of the workload, as the task file says.

    Returns:
        Nothing where the limits leave no room for the law's loads, or the specification lacks what this rests on.
    """
    if missing(properties):
        return []
    own = {control.name: (control.low, control.high) for control in CONTROLS} | dict(limits)
    # the upper limits are the network's: a law that cut its targets off below them would have less capacity
    low, high = max(LIMITS[0], own["target_cpu_limit_cores"][0]), own["target_cpu_limit_cores"][1]
    fewest, most = max(REPLICAS[0], own["target_replicas"][0]), own["target_replicas"][1]
    if low > high or fewest > most or high * most < LOAD[1] + HEADROOM:
        return []
    policy, service, found, left = read_chain(model), service_of(settings), [], SECONDS
    for change in CHANGES:
        law = law_of(service, LOAD, change, (low, high), (int(fewest), int(most)))
        scaler = scaler_of(policy, service, law)
        with tempfile.TemporaryDirectory() as name:
            one = scaler_guarantee(scaler, law, START, Path(name), threshold=THRESHOLD,
                                   headroom=HEADROOM, seconds=left)
            checked = check_scaler_guarantee(Path(name), scaler, law)
        known, refused = one.bound if checked.accepted else None, one.bound is not None and not checked.accepted
        found.append({
            "change": change, "change_unit": "cores a step", "status": "UNKNOWN" if refused else str(one.status),
            "statement": checked.reason if refused else one.statement(), "reason": one.reason,
            "bound": known.backlog if known else None, "bound_unit": "core seconds",
            "steps": known.steps if known else None, "growth": known and one.growth, "leaves": checked.leaves,
            "seconds": one.seconds})
        left -= one.seconds
        if known is None or left <= 0:
            break  # a load that changes by more is harder to follow
    return found
