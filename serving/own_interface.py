"""Whether a contract says of a policy what its system does: a guarantee of the closed loop rests on that.

Which numbers are measured and which are fed as they are written, what is set and how often, the observer, the rules and
the law of a system say (systems/*/interface.py). A contract is signed, and may still say something else: a queue that
is a setting is never measured, and a policy that is told so does nothing about it.
"""

import importlib
from typing import Any

from models.control.contract.acting import load_acting
from serving.contract import Contract


def other_interface(contract: Contract) -> str:
    """In what the contract of a policy of one of Assay's systems differs from that system, in words; "": in nothing."""
    driving, fallback = contract.driving, contract.fallback
    if driving is None or fallback is None:
        return "how it is driven and its fallback must be said, got none"
    system: Any = importlib.import_module(f"{driving.acting.module.rpartition('.')[0]}.interface")
    signals, controls = {one.name: one for one in system.SIGNALS}, {one.name: one for one in system.CONTROLS}
    measured = load_acting(driving.acting.module).observer().observe({}, {}, 1.0)
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
        "safe sides": ({name: one.safe_side for name, one in fallback.safe_ranges.items()},
                       {one.name: one.safe_side for one in controls.values()}),
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
