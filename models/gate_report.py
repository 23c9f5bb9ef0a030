"""Holds the evidence of one model against the gates of its task, and keeps what came out: gates.json. Pure.

Stands between `export` and `register`; `register` and `assay promote` evaluate again. A gate that cannot be evaluated
(a metric that is missing, NaN, infinite, of a wrong type or outside what it can physically be; a ratio of values that
are not above 0; fewer cases than asked, or nobody says how many) FAILS: a hole in the evidence never lets a model
through. The one exception: without a champion there is nobody to be held to, and a gate relative to it passes where the
metric itself is usable.

    evidence["metrics"]      {metric: number}
    evidence["case_counts"]  {metric: how many cases it is a mean of}, where a gate asks for least_cases
    evidence["units"]        {metric: unit}, of metrics that models/metrics.py does not list
    evidence["verdict"]      {"status": "PROVED", ...}
    champion                 {"version", "metrics": {metric: number}, ...}: the standing champion, measured on the new
                             model's own cases; None: there is none. Of cases that it was trained on ("left_out") both
                             models' are left out (models/paired_cases.py). Where nothing can be claimed ("unclaimed")
                             a gate relative to it rejects nobody: such a version stays challenger
                             (serving/succession.py). Nor does one of which fewer than least_cases are left, nor one
                             whose metric is beyond the threshold by no more than luck explains: the upper end of the
                             paired interval (at 99 %) reaches it. So far from a wide margin, an equal model would fail
                             about as often as it holds
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from feature_store.errors import InputError, nearest
from models.gates import CHAMPION, Gate, MetricGate, VerdictGate
from models.metrics import finite_number, known_metric, unit_of
from models.paired_cases import LEFT_OUT, UNCLAIMED, measured_cases, same_cases, unseen_cases
from models.paired_comparison import ComparisonRule, compare

Comparison = Literal["==", ">=", "<="]


@dataclass(frozen=True)
class GateResult:
    """One gate as it was evaluated.

    Attributes:
        name: of the gate.
        metric: that it judges; "verdict" for `specification`.
        value: of the metric; None: unusable.
        comparison: how the value must stand to the threshold.
        threshold: that was applied; None: none to apply.
        unit: of value and threshold; "" for a count or a word.
        cases: behind the metric; None: the evidence does not say.
        passed: whether the gate holds.
        reason: in one sentence.
    """

    name: str
    metric: str
    value: float | str | None
    comparison: Comparison
    threshold: float | str | None
    unit: str
    cases: int | None
    passed: bool
    reason: str


@dataclass(frozen=True)
class GateReport:
    """All gates of one model, in the order of the configuration."""

    gates: tuple[GateResult, ...]

    def __post_init__(self) -> None:
        if not self.gates:
            raise InputError("expected at least one gate, got none; an empty list proves nothing")

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
            raise InputError(f"gates: expected a list, got {data['gates']!r} (gates.json)")
        report = cls(tuple(_result_from_json(item, number) for number, item in enumerate(data["gates"])))
        names = [gate.name for gate in report.gates]
        if len(set(names)) != len(names):
            raise InputError(f"expected every gate once, got {names} (gates.json)")
        if data["passed"] is not report.passed:
            raise InputError(f"passed: expected {report.passed} as its gates say, got {data['passed']!r} (gates.json)")
        return report


def evaluate_gates(
    evidence: Mapping[str, Any], champion: Mapping[str, Any] | None, gates: Sequence[Gate]
) -> GateReport:
    """Holds the evidence against every gate.

    Args:
        evidence: the content of evidence.json.
        champion: as it was measured on the same cases; None: there is no champion.
        gates: of the task, `Configuration.gates[task]`.

    Raises:
        InputError: there is no gate.
    """
    measured = champion if champion is None or isinstance(champion, Mapping) else {}  # one without any metric
    return GateReport(tuple(_evaluate(gate, evidence, measured) for gate in gates))


def _evaluate(gate: Gate, evidence: Mapping[str, Any], champion: Mapping[str, Any] | None) -> GateResult:
    match gate:
        case VerdictGate():
            return _evaluate_verdict(gate, evidence)
        case MetricGate():
            return _evaluate_metric(gate, evidence, champion)


def _evaluate_verdict(gate: VerdictGate, evidence: Mapping[str, Any]) -> GateResult:
    verdict = evidence.get("verdict")
    status = verdict.get("status") if isinstance(verdict, Mapping) else None
    value = status if isinstance(status, str) else None
    reason = f"the verdict is {value}" if value else f"verdict.status: expected a word, got {status!r}"
    return GateResult(gate.name, "verdict", value, "==", gate.verdict, "", None, value == gate.verdict, reason)


def _evaluate_metric(gate: MetricGate, evidence: Mapping[str, Any], champion: Mapping[str, Any] | None) -> GateResult:
    comparison: Comparison = "<=" if gate.better == "smaller" else ">="
    cases = _case_count(evidence, gate.metric)

    def result(value: float | None, threshold: float | None, passed: bool, reason: str) -> GateResult:
        return GateResult(gate.name, gate.metric, value, comparison, threshold, unit_of(gate.metric, evidence), cases,
                          passed, reason)

    absolute = gate.limit if gate.compared == "value" else None
    if gate.unit and unit_of(gate.metric, evidence) != gate.unit:
        got = unit_of(gate.metric, evidence) or "none"
        return result(None, absolute, False, f"{gate.metric} must be in {gate.unit} as its gate says, got {got}")
    value, problem = _usable(evidence.get("metrics"), gate.metric, gate.metric)
    if value is None:
        return result(None, absolute, False, problem)
    if gate.least_cases and (cases is None or cases < gate.least_cases):
        number = "an unknown number" if cases is None else str(cases)
        rule = f"{gate.metric} must stand on at least {gate.least_cases} cases"
        return result(value, absolute, False, f"{rule}, got {number}")
    if gate.relative_to == CHAMPION:
        if champion is None:
            return result(value, None, True, "no champion yet")
        if isinstance(why := champion.get(UNCLAIMED), str):
            return result(value, None, True, f"nothing is claimed against the champion: {why}")
        if champion.get(LEFT_OUT):
            value, cases, problem = _on_unseen(gate.metric, evidence, champion)
            if value is None:
                return result(None, absolute, False, problem)
            if cases is not None and cases < gate.least_cases:
                return result(value, None, True, "this gate rejects nobody: the champion was trained on all but "
                                                 f"{cases} of the cases, and {gate.least_cases} are asked for")
    threshold, source = _threshold(gate, value, evidence, champion)
    if threshold is None:
        return result(value, None, False, source)
    passed = value >= threshold if gate.better == "larger" else value <= threshold
    over = "" if cases is None else f" over {cases:,} cases"
    verb = "holds" if passed else "does not hold"
    reason = f"{gate.metric} {value:.6g} {comparison} {threshold:.6g} {verb}{over}{source}"
    if not passed and gate.relative_to == CHAMPION and champion and _may_be_luck(gate, evidence, champion):
        return result(value, threshold, True, f"{reason}; by no more than luck explains, which rejects nobody")
    return result(value, threshold, passed, reason)


def _may_be_luck(gate: MetricGate, evidence: Mapping[str, Any], champion: Mapping[str, Any]) -> bool:
    """Whether a metric beyond its threshold may be within it on other cases: the paired interval reaches the threshold.

    False where no cases bear the metric, or they cannot be compared.
    """
    try:
        new, old = unseen_cases(evidence, champion.get(LEFT_OUT)), measured_cases(champion, evidence)
        if new.metric != gate.metric or new.better != gate.better or not same_cases(new, old):
            return False
        moved = np.asarray(old.values) * gate.limit if gate.compared == "ratio" else (
            np.asarray(old.values) + gate.limit * old.scale)
        return compare(new.values, moved, gate.better, ComparisonRule(), block=new.block).upper_end >= 0
    except InputError:
        return False


def _on_unseen(metric: str, evidence: Mapping[str, Any],
               champion: Mapping[str, Any]) -> tuple[float | None, int | None, str]:
    """The metric and the number of its cases without those that the champion was trained on, or None and why."""
    try:
        cases = unseen_cases(evidence, champion[LEFT_OUT])
    except InputError as error:
        return None, None, str(error)
    if cases.metric != metric:
        return None, None, f"{metric} must be that of the cases, {cases.metric}, where the champion has seen some"
    return cases.mean, len(cases.values), ""


def _threshold(
    gate: MetricGate, value: float, evidence: Mapping[str, Any], champion: Mapping[str, Any] | None
) -> tuple[float | None, str]:
    """The threshold and what it was made of, or None and the reason why the gate fails closed."""
    if gate.relative_to is None:
        return gate.limit, ""
    if gate.relative_to == CHAMPION:
        whose = f"the champion's {gate.metric}"
        measured = champion or {}
        reference, problem = _usable(measured.get("metrics"), gate.metric, whose)
        if reference is None and isinstance(measured.get("reason"), str):
            problem += f": {measured['reason']}"
    else:
        whose = gate.relative_to
        reference, problem = _usable(evidence.get("metrics"), gate.relative_to, whose)
        units = unit_of(gate.metric, evidence), unit_of(whose, evidence)
        if all(units) and units[0] != units[1]:
            reference, problem = None, f"{whose} must be in {units[0]}, as {gate.metric} is, got {units[1]}"
    if reference is None:
        return None, problem
    if gate.compared == "ratio":
        if value <= 0 or reference <= 0:
            return None, (f"a ratio compares values above 0, got {gate.metric} {value:.6g} and {whose} "
                          f"{reference:.6g}; let the gate compare a difference")
        threshold, made = reference * gate.limit, f"times {gate.limit:g}"
    else:
        threshold, made = reference + gate.limit, f"{gate.limit:+g}"
    if not math.isfinite(threshold):
        return None, f"expected a finite threshold, got {reference!r} {made}"
    return threshold, f"; {whose} is {reference:.6g}, {made}"


def _usable(metrics: Any, name: str, called: str) -> tuple[float | None, str]:
    """The metric and no problem, or None and the reason why the gate fails closed."""
    if not isinstance(metrics, Mapping) or name not in metrics:
        known = [str(key) for key in metrics] if isinstance(metrics, Mapping) else []
        return None, f"{called} must be in the evidence, it is missing; {nearest(name, known)}"
    number, limits = finite_number(metrics[name]), known_metric(name)
    if number is None:
        return None, f"{called} must be a finite number, got {metrics[name]!r}"
    if not limits.holds(number):
        return None, f"{called} must be {limits.limits}, got {number!r}"
    return number, ""


def _case_count(evidence: Mapping[str, Any], metric: str) -> int | None:
    """How many cases a metric is a mean of; None: the evidence does not say, or says no count."""
    counts = evidence.get("case_counts")
    count = counts.get(metric) if isinstance(counts, Mapping) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def _require_keys(data: Any, keys: set[str], where: str) -> None:
    if not isinstance(data, Mapping):
        raise InputError(f"expected a mapping of {', '.join(sorted(keys))}, got {data!r} ({where})")
    for key in data:
        if key not in keys:
            raise InputError(f"unknown key {key!r} ({where}); {nearest(str(key), keys)}")
    for key in sorted(keys - set(data)):
        raise InputError(f"expected the key {key!r}, got {sorted(map(str, data))} ({where})")


def _result_from_json(item: Any, number: int) -> GateResult:
    where = f"gates.json, gate {number}"
    _require_keys(item, set(GateResult.__dataclass_fields__), where)
    for key in ("name", "metric", "unit", "reason"):
        if not isinstance(item[key], str):
            raise InputError(f"{key}: expected a text, got {item[key]!r} ({where})")
    if item["comparison"] not in ("==", ">=", "<="):
        raise InputError(f"comparison: expected ==, >= or <=, got {item['comparison']!r} ({where})")
    if not isinstance(item["passed"], bool):
        raise InputError(f"passed: expected true or false, got {item['passed']!r} ({where})")
    for key in ("value", "threshold"):
        if not (item[key] is None or isinstance(item[key], str) or finite_number(item[key]) is not None):
            raise InputError(f"{key}: expected a finite number, a text or null, got {item[key]!r} ({where})")
    cases = item["cases"]
    if cases is not None and (isinstance(cases, bool) or not isinstance(cases, int) or cases < 0):
        raise InputError(f"cases: expected a whole number from 0 or null, got {cases!r} ({where})")
    return GateResult(**item)
