"""Gates in plain words: what is measured, the value, the limit, in the target's own unit where it is known.

Flow: decision.py says with it which gates fail, sections.py makes the table of all, a kind's `headline` shows the limit
beside a number.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from models.metrics import SHARE_UNIT, finite_number
from models.reporting.formatting import count, number, percent, said
from models.reporting.reading import at, mappings

Json = Mapping[str, Any]

# Of metrics whose names do not say it.
MEASURED = {
    "verdict": "verdict of the verifier", "test_mse": "error on test rows, root mean square",
    "test_mae": "mean absolute error on test rows", "test_mape": "mean absolute percentage error",
    "test_accuracy": "test rows predicted right", "counterexample_accuracy": "counterexamples answered right",
    "parity_max_abs": "largest difference between the file and what was trained", "latency_us": "time of one answer",
    "violating_share": "steps that miss the objective", "cost_saved": "cost saved against the best rule",
    "worst_tenth_violating_share": "steps that miss the objective in the worst tenth of the episodes",
    "reward_gain": "reward gained against the rule of the largest reward",
    "reward_deviation": "standard deviation of the reward"}
SQUARED, SCALED = "scaled²", "scaled"  # units of the target's scaling, whose range is 1
RELATIVE = "of the measured"  # unit of a percentage error
WORDS = {"==": "", "<=": "at most ", ">=": "at least "}


def measured(metric: str) -> str:
    """What a metric is, in words: cost_saved_lower -> cost saved against the best rule, lower end."""
    for end in ("lower", "upper"):
        if metric.endswith(f"_{end}"):
            return f"{measured(metric.removesuffix(f'_{end}'))}, {end} end"
    for prefix, whose in (("own_", " tuned to the workload"), ("generic_", ", of the generic policy")):
        if metric.startswith(prefix):
            return f"{measured(metric.removeprefix(prefix))}{whose}"
    return MEASURED.get(metric) or said(metric)


def amount(gate: Json, key: str, evidence: Json | None) -> str:
    """Value or threshold of a gate with its unit; of the scaled target, in the target's."""
    unit, value = str(gate.get("unit") or ""), gate.get(key)
    known = finite_number(value)
    span = _span(evidence)
    if unit in (SHARE_UNIT, RELATIVE):
        if known is not None and not -1 <= known <= 1:
            return number(100 * known, "%")
        return f"-{percent(-known)}" if known is not None and known < 0 else percent(value)
    if unit in (SQUARED, SCALED) and span is not None and known is not None and known >= 0:
        return number((math.sqrt(known) if unit == SQUARED else known) * span, str(at(evidence, "target", "unit")))
    return number(value, "of the range" if unit == SCALED else unit)


def _span(evidence: Json | None) -> float | None:
    """Range of the target's scaling, in its unit."""
    low, high = (finite_number(at(evidence, "target", end)) for end in ("minimum", "maximum"))
    return high - low if low is not None and high is not None and high > low else None


def limit(gate: Json, evidence: Json | None) -> str:
    """What the value must be: at most 500 µs; "" where nothing was held against it."""
    if gate.get("threshold") is None:
        return ""
    return WORDS.get(str(gate.get("comparison")), "") + amount(gate, "threshold", evidence)


def limit_of(metric: str, gates: Json | None, evidence: Json | None) -> str:
    """The limit of a metric's first gate, for a remark: "; limit: at most 500 µs"; "" where there is none."""
    limits = (limit(gate, evidence) for gate in mappings(gates, "gates") if gate.get("metric") == metric)
    return next((f"limit: {one}" for one in limits if one), "")


def remark(gate: Json) -> str:
    """What its reason adds to value, limit and number of cases."""
    reason, value = str(gate.get("reason") or ""), gate.get("value")
    known = finite_number(value)
    repeated = f"{gate.get('metric')} " + (f"{known:.6g} {gate.get('comparison')}" if known is not None else "")
    if reason == f"the verdict is {value}":
        return ""
    if known is None or finite_number(gate.get("threshold")) is None or not reason.startswith(repeated):
        return reason
    # "; mean_mse is 0.05, times 2": the number is that of the limit in another unit
    return re.sub(r"^(.*?) is \S+, ", r"\1 ", reason.partition("; ")[2])


def failure(gate: Json, evidence: Json | None) -> str:
    """A gate that fails, in a sentence."""
    name, value, wanted = measured(str(gate.get("metric"))), amount(gate, "value", evidence), limit(gate, evidence)
    cases = finite_number(gate.get("cases"))
    over = "" if cases is None else f", over {count(int(cases), 'case')}"
    why = remark(gate)
    return (f"{name[:1].upper()}{name[1:]}: {value}{over}" + (f"; must be {wanted}" if wanted else "")
            + f" (gate `{gate.get('name')}`{': ' + why if why else ''})")
