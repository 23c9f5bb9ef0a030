"""What an exported policy guarantees in the closed loop with the fluid law: a few quick ones, the last for its bundle.

A workload that runs a recorded server has its CPU time and memory; others have what the task file says. The assumptions
are those of in_fluid_law.py; guarantee_check.py checks what goes with the bundle.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feature_store.errors import InputError
from models.control.contract.guarantee import Shipped
from models.verification.checker.chain import read_chain
from systems.autoscaling.guarantee.guarantee_check import (
    LEAST_LIMIT,
    LEAST_REPLICAS,
    check_shipped,
    falls,
    missing,
    shipped,
)
from systems.autoscaling.guarantee.in_fluid_law import Service, law_of, scaler_of
from systems.autoscaling.guarantee.scaler_guarantee import scaler_guarantee
from systems.autoscaling.interface import CONTROLS
from systems.autoscaling.twin.twin import RECORDED, SETTINGS

# Cores a step; cores of load; CPU limits and replicas of the law, of which the upper ones are the task file's; B and v0
# in core seconds, headroom in cores; for the proofs of all changes.
CHANGES = (0.0, 0.0025, 0.005)
LOAD, LIMITS, REPLICAS = (1.0, 5.0), (LEAST_LIMIT, 2.0), (LEAST_REPLICAS, 32)
WORDS = {"change": "Load changes by at most", "bound": "Backlog at most",
         "caption": "For ever after so many steps, from any backlog and any capacity that runs"}
START, THRESHOLD, HEADROOM, SECONDS = 60.0, 4.0, 0.5, 45.0


def service_of(settings: Mapping[str, float | str]) -> Service:
    """Of what a task file says of a workload."""
    default = {setting.name: setting.default for setting in SETTINGS}
    server = RECORDED.get(str(settings.get("server", "")), {})
    said = {name: settings.get(name, server.get(name, default[name])) for name in ("cpu_ms", "memory_mib", "slo_ms")}
    return Service(**{name: float(value) for name, value in said.items()})


def autoscaling_guarantees(model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                           limits: Mapping[str, tuple[float, float]]) -> tuple[list[dict[str, Any]], Shipped | None]:
    """One for each of CHANGES up to the first that is not proved, as plain values; what is PROVED was checked again.

    Args:
        model: the exported file.
        properties: what is proved of it (specification.yaml).
        settings, limits: of the workload, as the task file says.

    Returns:
        The list, and what ships of it: the last that is proved. Nothing where the limits leave no room for the law's
        loads, or carry them at their least, so that nothing can fall behind; or where the specification lacks what this
        rests on.
    """
    if missing(properties):
        return [], None
    own = {control.name: (control.low, control.high) for control in CONTROLS} | dict(limits)
    # the upper limits are the network's: a law that cut its targets off below them would have less capacity
    low, high = max(LEAST_LIMIT, own["target_cpu_limit_cores"][0]), own["target_cpu_limit_cores"][1]
    fewest, most = max(LEAST_REPLICAS, own["target_replicas"][0]), own["target_replicas"][1]
    carried = LOAD[1] + HEADROOM
    if low > high or fewest > most or high * most < carried or low > carried / fewest:
        return [], None
    policy, service, left, last = read_chain(model), service_of(settings), SECONDS, None
    found = list[dict[str, Any]]()
    for change in CHANGES:
        law = law_of(service, LOAD, change, (low, high), (int(fewest), int(most)))
        scaler = scaler_of(policy, service, law, falls(properties))
        with tempfile.TemporaryDirectory() as name:
            try:
                one = scaler_guarantee(scaler, law, START, Path(name), threshold=THRESHOLD,
                                       headroom=HEADROOM, seconds=left)
            except InputError as error:  # what the law shows a policy is beyond a signal's range
                return [*found, {
                    "change": change, "change_unit": "cores a step", "status": "UNKNOWN",
                    "statement": f"Nothing is guaranteed: {error}.", "reason": str(error), "bound": None,
                    "bound_unit": "core seconds", "steps": None, "growth": None, "leaves": 0, "seconds": 0.0}], last
            content = shipped(Path(name), service, law)
            checked = check_shipped(content, model, properties, {})
        known, refused = one.bound if checked.accepted else None, one.bound is not None and not checked.accepted
        found.append({
            "change": change, "change_unit": "cores a step", "status": "UNKNOWN" if refused else str(one.status),
            "statement": checked.reason if refused else one.statement(), "reason": one.reason,
            "bound": known.backlog if known else None, "bound_unit": "core seconds",
            "steps": known.steps if known else None, "growth": known and one.growth, "leaves": checked.leaves,
            "seconds": one.seconds})
        last = Shipped(content, checked) if checked.accepted else last
        left -= one.seconds
        if known is None or left <= 0:
            break  # a load that changes by more is harder to follow
    return found, last
