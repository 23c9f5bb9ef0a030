"""Whether a contract says of a policy what its system does: what is proved of it, and its gates, rest on that.

Which numbers are measured and which are fed as they are written, what is set and how often, the observer, the rules and
the law of a system say (systems/*/interface.py). A contract is signed, and may still say something else: a queue that
is a setting is never measured, and a policy that is told so does nothing about it. Of a system that does not come with
Assay nobody here knows the interface: its contract is held against itself (contract.py), and its code by who acts.
"""

import importlib
import math
from collections.abc import Mapping
from typing import Any

from feature_store.errors import InputError
from models.control.contract.acting import comes_along, load_acting
from models.control.contract.guarantee import HeldLive, exceeded
from serving.contract import Contract

_OF_ASSAY = "systems."


def other_interface(contract: Contract) -> str:
    """In what the contract of a policy differs from its system, in words; "": in nothing that can be known here.

    Nothing is asked of a contract that is no policy's, which neither names what acts nor a fallback.
    """
    driving, fallback = contract.driving, contract.fallback
    if driving is None and fallback is None:
        return ""
    if driving is None or fallback is None:
        return f"`driving` and `fallback` must be said together, got no `{'fallback' if driving else 'driving'}`"
    module = driving.acting.module
    if not comes_along(module):
        claimed = module.startswith(_OF_ASSAY)
        return f"acting must be of a system that comes with Assay, got {module}" if claimed else ""
    try:
        system: Any = importlib.import_module(f"{module.rpartition('.')[0]}.interface")
        acting = load_acting(module, driving.acting.sha256)
    except (ImportError, InputError) as error:
        return f"acting must be installed here as the bundle was made with it: {error}"
    if fallback.rule not in acting.rules:
        return f"fallback must be one of {', '.join(acting.rules)}, got {fallback.rule}"
    try:
        acting.rules[fallback.rule].make(fallback.settings)
    except InputError as error:
        return f"fallback must be one that can act: {error}"
    signals, controls = {one.name: one for one in system.SIGNALS}, {one.name: one for one in system.CONTROLS}
    measured = acting.observer().observe({}, {}, 1.0)
    pairs: dict[str, tuple[object, object]] = {
        "inputs": ([one.name for one in contract.inputs], list(signals)),
        "outputs": ([one.name for one in contract.outputs], list(controls)),
        "units of inputs": ({one.name: one.unit for one in contract.inputs},
                            {one.name: one.unit for one in system.SIGNALS}),
        "units of outputs": ({one.name: one.unit for one in contract.outputs},
                             {one.name: one.unit for one in system.CONTROLS}),
        "physical ranges of inputs": (
            {one.name: (one.physical_minimum, one.physical_maximum) for one in contract.inputs},
            {one.name: (one.low, one.high) for one in signals.values()}),
        "present values": (dict(driving.current), {one.name: one.current for one in controls.values()}),
        "whole outputs": (sorted(driving.whole), sorted(one.name for one in controls.values() if one.whole)),
        "settings": (sorted(driving.settings), sorted(set(signals) - set(measured))),
        "seconds between decisions": (driving.step_s, system.STEP_SECONDS),
        "kinds of outputs": ({one.kind for one in contract.outputs}, {"target"}),
        "safe sides": ({name: one.safe_side for name, one in fallback.safe_ranges.items()},
                       {one.name: one.safe_side for one in controls.values()}),
        "most_down and most_up": (
            {name: (one.most_down, one.most_up) for name, one in fallback.safe_ranges.items()},
            {one.name: (one.most_down, one.most_up) for one in controls.values()}),
    }
    for what, (said, own) in pairs.items():
        if said != own:
            return f"{what} must be the system's, {own}, got {said}"
    for name, control in controls.items():
        levels, safe = driving.levels.get(name, ()), fallback.safe_ranges[name]
        if bool(levels) != bool(control.levels and levels) or not control.low <= safe.minimum <= safe.maximum <= \
                control.high or (levels and not safe.minimum <= levels[0] <= levels[-1] <= safe.maximum):
            return (f"levels and safe range of {name} must be within {control.low:g} to {control.high:g}, levels only "
                    f"where it has some and within the safe range, got {list(levels)} and {safe.minimum:g} to "
                    f"{safe.maximum:g}")
    return ""


def bounds_for_all(contract: Contract, specification: Mapping[str, Any]) -> str:
    """Which bound that is proved of a target, in every state, others than the policy may exceed, in words; "": none.

    Of a contract of Assay's systems: an allotment is what agents share by, whoever acts.

    Args:
        specification: as specification.yaml has it.
    """
    if contract.driving is None or not comes_along(contract.driving.acting.module):
        return ""
    return exceeded(specification["properties"], targets_of(contract), shown_by(contract))


def targets_of(contract: Contract) -> dict[str, HeldLive]:
    """By name, what the shield keeps of targets; none of a contract without a fallback."""
    driving, fallback = contract.driving, contract.fallback
    if driving is None or fallback is None:
        return {}
    return {name: HeldLive(one.minimum, one.maximum, driving.current[name], one.ceilings)
            for name, one in fallback.safe_ranges.items()}


def shown_by(contract: Contract) -> dict[str, tuple[float, float]]:
    """Input -> (low, high) of what a policy may be shown (inputs.py), in its unit."""
    return {one.name: (-math.inf if one.physical_minimum is None else one.physical_minimum,
                       math.inf if one.physical_maximum is None else one.physical_maximum)
            for one in contract.inputs}
