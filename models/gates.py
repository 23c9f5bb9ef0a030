"""Promotion gates: named predicates over the evidence of one trained model.

Stands between `export` and `register`: the evidence goes in, a report goes out, nothing is read
from disk or clock. A gate that cannot be evaluated (a metric that is missing, NaN, infinite, of a
wrong type or outside what it can physically be) FAILS: a hole in the evidence never lets a model through.

    gate                     metric (evidence["metrics"])       holds where
    specification            evidence["verdict"]["status"]      == verdict (only "PROVED" is allowed)
    test_accuracy            test_accuracy, share 0..1          >= minimum
    champion_mse             test_mse, squared target units     <= champion's test_mse * maximum_ratio
    baseline_mse             test_mse, squared target units     <= baseline_mse * maximum_ratio
    mean_baseline            test_mse, squared target units     <= mean_mse * maximum_ratio
    test_rows                test_rows, a count                 >= minimum
    test_mape                test_mape, share of the measured   <= maximum
    counterexample_accuracy  counterexample_accuracy, 0..1      >= minimum
    parity                   parity_max_abs, scaled target      <= maximum
    latency                  latency_us, microseconds           <= maximum_us

The champion's test_mse is that of the standing champion evaluated on the SAME new test set; mean_mse that of the
training rows' mean target, predicted for every test row.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from feature_store.errors import InputError, nearest

Comparison = Literal["==", ">=", "<="]
PROVED = "PROVED"


@dataclass(frozen=True)
class Gate:
    """What a gate compares.

    Attributes:
        metric: name in evidence["metrics"]; the verdict for `specification`.
        parameter: the one key of its threshold in mlflow.yaml.
        comparison: how the value stands to the threshold where the gate holds.
        maximum: largest value the metric can have (1.0 for a share), None where there is none.
        relative_to: metric that the threshold multiplies, None where the threshold is absolute.
    """

    metric: str
    parameter: str
    comparison: Comparison
    maximum: float | None = None
    relative_to: str | None = None


GATES: dict[str, Gate] = {
    "specification": Gate("verdict", "verdict", "=="),
    "test_accuracy": Gate("test_accuracy", "minimum", ">=", maximum=1.0),
    "champion_mse": Gate("test_mse", "maximum_ratio", "<=", relative_to="champion"),
    "baseline_mse": Gate("test_mse", "maximum_ratio", "<=", relative_to="baseline_mse"),
    "mean_baseline": Gate("test_mse", "maximum_ratio", "<=", relative_to="mean_mse"),
    "test_rows": Gate("test_rows", "minimum", ">="),
    "test_mape": Gate("test_mape", "maximum", "<="),
    "counterexample_accuracy": Gate("counterexample_accuracy", "minimum", ">=", maximum=1.0),
    "parity": Gate("parity_max_abs", "maximum", "<="),
    "latency": Gate("latency_us", "maximum_us", "<="),
}


@dataclass(frozen=True)
class GateResult:
    """One gate: the value it saw (None: unusable), the threshold it applied (None: none to apply)."""

    name: str
    value: float | str | None
    threshold: float | str | None
    comparison: Comparison
    passed: bool
    reason: str


@dataclass(frozen=True)
class GateReport:
    """All gates of one model, in the order of the configuration."""

    gates: tuple[GateResult, ...]

    def __post_init__(self) -> None:
        if not self.gates:
            raise InputError("gates must hold at least one gate, got none; an empty list proves nothing")

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(gate.passed for gate in self.gates)

    def to_json(self) -> dict[str, Any]:
        """The content of gates.json; values are finite, so that it is strict JSON."""
        return {"passed": self.passed, "gates": [vars(gate).copy() for gate in self.gates]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GateReport":
        """Reads gates.json back.

        Raises:
            InputError: a key or a type is wrong, or `passed` contradicts the gates.
        """
        _require_keys(data, {"passed", "gates"}, "gates.json")
        if not isinstance(data["gates"], list):
            raise InputError(f"gates must be a list, got {data['gates']!r} (gates.json)")
        report = cls(tuple(_result_from_json(item, number) for number, item in enumerate(data["gates"])))
        names = [gate.name for gate in report.gates]
        if len(set(names)) != len(names):
            raise InputError(f"gate names must be unique, got {names} (gates.json)")
        if data["passed"] is not report.passed:
            raise InputError(
                f"passed must be {report.passed} as its gates say, got {data['passed']!r} (gates.json)"
            )
        return report


def check_thresholds(thresholds: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Refuses a threshold table that names an unknown gate or parameter, or holds an unusable number.

    Raises:
        InputError: with the nearest known name; `where` says which table it was.
    """
    if not thresholds:
        raise InputError(f"gates must name at least one gate, got none ({where}); known: {', '.join(GATES)}")
    for name, parameters in thresholds.items():
        if name not in GATES:
            raise InputError(f"gate must be a known one, got {name!r} ({where}); {nearest(str(name), GATES)}")
        gate = GATES[name]
        _require_keys(parameters, {gate.parameter}, f"{where}.{name}")
        value = parameters[gate.parameter]
        if name == "specification":
            if value != PROVED:
                raise InputError(
                    f"verdict must be {PROVED!r}, got {value!r} ({where}.{name}); "
                    "no other verdict may be promoted, leave the gate out of an experiment instead"
                )
        elif (number := finite_number(value)) is None or number < 0 or number > (gate.maximum or math.inf):
            hint = "; YAML reads 1e-4 as text, write 0.0001" if isinstance(value, str) else ""
            limit = "" if gate.maximum is None else f" up to {gate.maximum:g}"
            rule = f"{gate.parameter} must be a finite number from 0{limit}"
            raise InputError(f"{rule}, got {value!r} ({where}.{name}){hint}")


def evaluate_gates(
    evidence: Mapping[str, Any],
    champion: Mapping[str, Any] | None,
    thresholds: Mapping[str, Mapping[str, Any]],
) -> GateReport:
    """Holds the evidence against every configured gate.

    Args:
        evidence: the content of evidence.json: {"metrics": {name: float}, "verdict": {"status": str}, ...}.
        champion: {"test_mse": standing champion on the same new test set, "version": ...}; None: no champion.
        thresholds: gates of the task, `Configuration.gates[task]`.

    Raises:
        InputError: the threshold table is empty, names an unknown gate or holds an unusable number.
    """
    check_thresholds(thresholds, "gates")
    return GateReport(tuple(_evaluate(name, evidence, champion, thresholds[name]) for name in thresholds))


def finite_number(value: Any) -> float | None:
    """A value of a JSON file as a finite float; None: it is no number, a truth value, or none that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer that no float can hold
        return None
    return number if math.isfinite(number) else None


def _evaluate(
    name: str, evidence: Mapping[str, Any], champion: Mapping[str, Any] | None, parameters: Mapping[str, Any]
) -> GateResult:
    gate = GATES[name]
    limit = parameters[gate.parameter]
    if name == "specification":
        return _evaluate_verdict(evidence, limit)
    value, problem = _usable(_metric(evidence, gate.metric), gate.metric, gate.maximum)
    if value is None:
        absolute = float(limit) if gate.relative_to is None else None
        return GateResult(name, None, absolute, gate.comparison, False, problem)
    if gate.relative_to is None:
        threshold, held_against = float(limit), ""
    else:
        if gate.relative_to == "champion" and champion is None:
            return GateResult(name, value, None, gate.comparison, True, "no champion yet")
        reference, problem = _reference(gate.relative_to, evidence, champion)
        threshold = math.inf if reference is None else reference * limit
        if not math.isfinite(threshold):
            problem = problem or f"threshold must be finite, got {reference!r} times {limit!r}"
            return GateResult(name, value, None, gate.comparison, False, problem)
        held_against = f"; {gate.relative_to} has {reference:.6g}, times {limit:g}"
    passed = value >= threshold if gate.comparison == ">=" else value <= threshold
    verb = "holds" if passed else "does not hold"
    reason = f"{gate.metric} {value:.6g} {gate.comparison} {threshold:.6g} {verb}{held_against}"
    return GateResult(name, value, threshold, gate.comparison, passed, reason)


def _evaluate_verdict(evidence: Mapping[str, Any], required: str) -> GateResult:
    verdict = evidence.get("verdict")
    status = verdict.get("status") if isinstance(verdict, Mapping) else None
    value = status if isinstance(status, str) else None
    reason = f"the verdict is {value}" if value else f"verdict.status must be in the evidence, got {status!r}"
    return GateResult("specification", value, required, "==", value == required, reason)


def _reference(
    relative_to: str, evidence: Mapping[str, Any], champion: Mapping[str, Any] | None
) -> tuple[float | None, str]:
    if relative_to == "champion":
        return _usable((champion or {}).get("test_mse", _Missing), "the champion's test_mse", None)
    return _usable(_metric(evidence, relative_to), relative_to, None)


class _Missing:
    """Stands for a metric that the evidence does not hold (None may be its recorded value)."""


def _metric(evidence: Mapping[str, Any], name: str) -> Any:
    metrics = evidence.get("metrics")
    return metrics.get(name, _Missing) if isinstance(metrics, Mapping) else _Missing


def _usable(value: Any, name: str, maximum: float | None) -> tuple[float | None, str]:
    """The value and no problem, or None and the reason why the gate fails closed."""
    if value is _Missing:
        return None, f"{name} must be in the evidence, it is missing"
    number = finite_number(value)
    if number is None:
        return None, f"{name} must be a finite number, got {value!r}"
    if number < 0 or (maximum is not None and number > maximum):
        limit = "infinity" if maximum is None else f"{maximum:g}"
        return None, f"{name} must lie in 0..{limit}, got {number!r}"
    return number, ""


def _require_keys(data: Any, keys: set[str], where: str) -> None:
    if not isinstance(data, Mapping):
        raise InputError(f"{where} must be a mapping with {', '.join(sorted(keys))}, got {data!r}")
    for key in data:
        if key not in keys:
            raise InputError(f"key must be a known one, got {key!r} ({where}); {nearest(str(key), keys)}")
    for key in sorted(keys - set(data)):
        raise InputError(f"key {key!r} must be given, got {sorted(map(str, data))} ({where})")


def _result_from_json(item: Any, number: int) -> GateResult:
    where = f"gates.json, gate {number}"
    _require_keys(item, set(GateResult.__dataclass_fields__), where)
    if not isinstance(item["name"], str) or not isinstance(item["reason"], str):
        raise InputError(f"name and reason must be text, got {item['name']!r}, {item['reason']!r} ({where})")
    if item["comparison"] not in ("==", ">=", "<="):
        raise InputError(f"comparison must be ==, >= or <=, got {item['comparison']!r} ({where})")
    if not isinstance(item["passed"], bool):
        raise InputError(f"passed must be true or false, got {item['passed']!r} ({where})")
    for key in ("value", "threshold"):
        if not (item[key] is None or isinstance(item[key], str) or finite_number(item[key]) is not None):
            raise InputError(f"{key} must be a finite number, text or null, got {item[key]!r} ({where})")
    return GateResult(**item)
