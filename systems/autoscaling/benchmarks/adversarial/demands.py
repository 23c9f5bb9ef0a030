"""The demands of systems/autoscaling/autoscaling.yaml in an operator's words, and how far a state is from keeping one.

A row of the table is one demand on one target; its properties are those of the task file. That targets stay inside of
their bounds is left out: every policy clips them.

Symbols: P states, n signals, m controls; x (P, n) raw observations, y (P, m) raw targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.control.contract.signals import Control
from models.control.policy.policy import PolicyShape
from models.tasks.control.task import ControlTask
from models.verification.language.properties import Monotonicity, OutputOrder, OutputRange, Property
from models.verification.language.specification_language import parse_specification

Array = NDArray[np.float64]
DEMANDS = {
    "latency": "a worse p99 never leads to less",
    "served": "fewer requests answered never lead to less",
    "load": "more load never leads to less",
    "missed": "while the objective is missed nothing is taken away",
    "idle": "while it is met and what is there idles nothing is added",
    "hold": "for a minute after raising none is taken away",
    "quarter": "never more than a quarter is removed in a step",
}
_MONOTONE = {"p99_ms": "latency", "served_share": "served", "rate_rps": "load"}
# A change that an operator sees: whole replicas as they are set, and of limits one part in a hundred.
NOTICED = 0.01
# Two demands hold replicas back; where one is looked at, the other should not: some way from its gate.
_HOLD_OVER_S, _MET = 120.0, 0.8
ROUNDING = 1e-3  # above a whole number by less than this, a target is that number (simulator.py)


@dataclass(frozen=True)
class Row:
    """One demand on one target.

    Attributes:
        demand: key of DEMANDS.
        control: what it is about.
        rules: the task file's properties; of orders each holds where its conditions do.
        written: the same as they are written.
    """

    demand: str
    control: Control
    rules: tuple[Monotonicity | OutputOrder, ...]
    written: tuple[Mapping[str, Any], ...]

    @property
    def feature(self) -> int | None:
        """Column of the signal in which the target is to be monotone; None where the demand is on one state."""
        rule = self.rules[0]
        return rule.features[0] if isinstance(rule, Monotonicity) else None

    @property
    def worse(self) -> int:
        """+1 where the signal gets worse as it rises, -1 where as it falls; 0 where the demand is on one state."""
        rule = self.rules[0]
        return rule.sign if isinstance(rule, Monotonicity) else 0


def rows_of(task: ControlTask, shape: PolicyShape, properties: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows, in the order of DEMANDS.

    Args:
        properties: of the task file.

    Raises:
        InputError: a property that is none of DEMANDS.
    """
    specification = parse_specification(
        {"properties": list(properties)}, tuple(signal.name for signal in shape.signals),
        {signal.name: (signal.low, signal.high) for signal in shape.signals}, task.name,
        tuple(control.name for control in shape.controls))
    found: dict[tuple[str, int], list[tuple[Any, Mapping[str, Any]]]] = {}
    for rule, written in zip(specification.properties, properties, strict=True):
        if not isinstance(rule, OutputRange):
            found.setdefault((_demand(rule, shape), _output(rule)), []).append((rule, written))
    order = list(DEMANDS)
    return [Row(demand, shape.controls[output], tuple(rule for rule, _ in own), tuple(written for _, written in own))
            for (demand, output), own in sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))]


def _demand(rule: Property, shape: PolicyShape) -> str:
    names = [signal.name for signal in shape.signals]
    match rule:
        case Monotonicity(features=(feature,)) if names[feature] in _MONOTONE:
            return _MONOTONE[names[feature]]
        case OutputOrder() if any(names[one.feature] == "raised_s_ago" for one in rule.when):
            return "hold"
        case OutputOrder(at_least=((more, _),)):
            return {"p99_ms": "missed", "slo_ms": "idle"}[names[more]]
        case OutputOrder(at_least=()):
            return "quarter"
    raise InputError(f"specification: expected the demands of an autoscaler, got another one: {rule}")


def _output(rule: Property) -> int:
    (output,) = rule.outputs
    return output


def specification_text(shape: PolicyShape, properties: Sequence[Mapping[str, Any]]) -> str:
    """SPEC.yaml of these properties over all that can be observed."""
    return yaml.safe_dump({
        "features": [signal.name for signal in shape.signals], "outputs": [one.name for one in shape.controls],
        "box": {signal.name: [signal.low, signal.high] for signal in shape.signals}, "properties": list(properties)})


def set_targets(shape: PolicyShape, y: Array) -> Array:
    """(P, m) targets as they are set: whole numbers rounded up."""
    whole = np.array([control.whole for control in shape.controls])
    return np.where(whole, np.ceil(y - ROUNDING), y)


def noticed(row: Row, shape: PolicyShape, x: Array, amount: Array) -> NDArray[np.bool_]:
    """(P,): whether an operator sees the difference, of targets as they are set."""
    present = x[:, shape.column(row.control.current)]
    return amount > (0.5 if row.control.whole else NOTICED * present)


def alone(row: Row, shape: PolicyShape, x: Array) -> NDArray[np.bool_]:
    """(P,): whether no other demand holds the target back in the states: those are some way from its gate."""
    calm = x[:, shape.column("p99_ms")] < _MET * x[:, shape.column("slo_ms")]
    free = x[:, shape.column("raised_s_ago")] >= _HOLD_OVER_S
    match row.demand:
        case "served" | "load":
            return np.asarray(calm & free)
        case "latency" | "missed":  # of which p99 itself goes through a range
            return np.asarray(free)
        case "hold":
            return np.asarray(calm)
    return np.ones(len(x), dtype=np.bool_)
