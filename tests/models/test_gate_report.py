"""Gates fail closed: whatever cannot be evaluated does not pass."""

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.gate_report import GateReport, GateResult, evaluate_gates
from models.gates import CHAMPION, MetricGate, VerdictGate, parse_gate, parse_gates
from models.metrics import METRICS
from models.paired_cases import Cases

LINES: dict[str, dict[str, Any]] = {
    "specification": {"verdict": "PROVED"},
    "test_accuracy": {"metric": "test_accuracy", "better": "larger", "at_least": 0.5},
    "champion_mse": {"metric": "test_mse", "better": "smaller", "relative_to": "champion", "at_most_ratio": 1.05},
    "baseline_mse": {"metric": "test_mse", "better": "smaller", "relative_to": "baseline_mse", "at_most_ratio": 1.5},
    "mean_baseline": {"metric": "test_mse", "better": "smaller", "relative_to": "mean_mse", "at_most_ratio": 1.0},
    "counterexample_accuracy": {"metric": "counterexample_accuracy", "better": "larger", "at_least": 1.0},
    "parity": {"metric": "parity_max_abs", "better": "smaller", "at_most": 0.0001},
    "latency": {"metric": "latency_us", "better": "smaller", "at_most": 500},
    "reward": {"metric": "mean_reward", "better": "larger", "at_least": -12.5, "least_cases": 100},
    "rules": {"metric": "mean_reward", "better": "larger", "relative_to": "rule_reward", "at_least_difference": 0.0},
    "champion_reward": {"metric": "mean_reward", "better": "larger", "relative_to": "champion",
                        "at_least_difference": -0.5},
}
GATES = {gate.name: gate for gate in parse_gates(LINES, "tests")}
METRIC_GATES = [gate for gate in GATES.values() if isinstance(gate, MetricGate)]
EVIDENCE: dict[str, Any] = {
    "metrics": {
        "test_mse": 1.0,
        "test_accuracy": 0.8,
        "counterexample_accuracy": 1.0,
        "baseline_mse": 0.9,
        "mean_mse": 1.4,
        "parity_max_abs": 1e-6,
        "latency_us": 12.0,
        "mean_reward": -10.0,
        "rule_reward": -11.0,
    },
    "case_counts": {"mean_reward": 200, "test_mse": 40},
    "units": {"mean_reward": "EUR"},
    "verdict": {"status": "PROVED"},
}
CHAMPION_MEASURED: dict[str, Any] = {"metrics": {"test_mse": 1.1, "mean_reward": -9.6}, "version": 3}


def result(name: str, evidence: Any = None, champion: Any = CHAMPION_MEASURED) -> GateResult:
    return evaluate_gates(evidence or EVIDENCE, champion, [GATES[name]]).gates[0]


def paired(name: str, new: Sequence[float], old: Sequence[float], sha256: str = "0" * 64) -> GateResult:
    """A gate relative to the champion, of two models whose cases are known."""
    better: Any = GATES[name].better  # type: ignore[union-attr]
    metric: str = GATES[name].metric  # type: ignore[union-attr]
    sides = [{"metrics": {metric: Cases("q", metric, better, "u", tuple(values), digest).mean},
              "case_counts": {metric: len(values)},
              "cases": Cases("q", metric, better, "u", tuple(values), digest).to_json()}
             for values, digest in ((new, "0" * 64), (old, sha256))]
    return result(name, *sides)


def changed(metric: str, value: Any) -> dict[str, Any]:
    evidence = copy.deepcopy(EVIDENCE)
    evidence["metrics"][metric] = value
    return evidence


def test_all_gates_hold_and_keep_the_order_of_the_configuration() -> None:
    report = evaluate_gates(EVIDENCE, CHAMPION_MEASURED, list(GATES.values()))
    assert report.passed
    assert [gate.name for gate in report.gates] == list(LINES)
    assert all(gate.passed and gate.reason for gate in report.gates)


def with_cases(values: list[float]) -> dict[str, Any]:
    evidence = changed("test_mse", sum(values) / len(values))
    evidence["case_counts"]["test_mse"] = len(values)
    return {**evidence, "cases": {"quantity": "squared error", "metric": "test_mse", "better": "smaller",
                                  "unit": "ms²", "values": values, "sha256": "ab" * 32, "scale": 1.0, "block": None}}


def test_cases_that_the_champion_was_trained_on_reject_nobody() -> None:
    """Where neither was trained, both have the error 1; the champion knows the first 30 by heart."""
    evidence = with_cases([2.0] * 30 + [1.0] * 40)
    champion = {"version": 3, "metrics": {"test_mse": 1.0}}
    assert not result("champion_mse", evidence, champion).passed
    found = result("champion_mse", evidence, {**champion, "left_out": list(range(30))})
    assert (found.passed, found.value, found.cases) == (True, 1.0, 40)
    worse = result("champion_mse", with_cases([0.0] * 30 + [1.2] * 40), {**champion, "left_out": list(range(30))})
    assert (worse.passed, worse.value) == (False, pytest.approx(1.2)), "nor do they let anybody in"


@pytest.mark.parametrize(("least", "passed"), [(40, False), (41, True)])
def test_as_many_cases_are_asked_for_as_decide(least: int, passed: bool) -> None:
    evidence, gate = with_cases([0.0] * 30 + [1.2] * 40), replace(GATES["champion_mse"], least_cases=least)
    champion = {"version": 3, "metrics": {"test_mse": 1.0}, "left_out": list(range(30))}
    (found,) = evaluate_gates(evidence, champion, [gate]).gates
    assert found.passed is passed and ("all but 40 of the cases, and 41 are asked for" in found.reason) is passed


@pytest.mark.parametrize(("unit", "passed"), [("ms", True), ("s", False), (None, True)])
def test_a_reference_in_another_unit_fails(unit: str | None, passed: bool) -> None:
    gate = parse_gate("stalls", {"metric": "stalls", "better": "smaller", "relative_to": "usual", "at_most_ratio": 1.5,
                                 "unit": "ms"}, "tests")
    evidence = {"metrics": {"stalls": 2.0, "usual": 2.0}, "units": {"stalls": "ms", "usual": unit}}
    (found,) = evaluate_gates(evidence, None, [gate]).gates
    assert found.passed is passed and ("usual must be in ms, as stalls is, got s" in found.reason) is not passed


@pytest.mark.parametrize("places", [[70], [-1], ["0"], {}, "all", list(range(70)), [[1]]])
def test_places_that_name_no_cases_let_nobody_through(places: Any) -> None:
    champion = {"version": 3, "metrics": {"test_mse": 9.0}, "left_out": places}
    assert result("champion_mse", with_cases([1.0] * 70), champion).passed is (places == {})
    if places:
        assert not result("champion_mse", EVIDENCE, champion).passed, "without cases"


def test_where_nothing_can_be_claimed_nobody_is_rejected_for_the_champion() -> None:
    report = evaluate_gates(changed("test_mse", 1.3), {"version": 3, "metrics": {}, "unclaimed": "it saw all of them"},
                            [GATES["champion_mse"], GATES["test_accuracy"]])
    assert report.passed
    assert report.gates[0].reason == "nothing is claimed against the champion: it saw all of them"
    unusable = changed("test_mse", math.nan)
    assert not result("champion_mse", unusable, {"metrics": {}, "unclaimed": "it saw all of them"}).passed


@pytest.mark.parametrize(("name", "metric", "at_limit", "beyond"), [
    ("test_accuracy", "test_accuracy", 0.5, 0.4999),
    ("champion_mse", "test_mse", 1.1 * 1.05, 1.1551),
    ("baseline_mse", "test_mse", 0.9 * 1.5, 1.3501),
    ("mean_baseline", "test_mse", 1.4, 1.4001),
    ("counterexample_accuracy", "counterexample_accuracy", 1.0, 0.9999),
    ("parity", "parity_max_abs", 0.0001, 0.000101),
    ("latency", "latency_us", 500, 500.1),
    ("reward", "mean_reward", -12.5, -12.51),
    ("rules", "mean_reward", -11.0, -11.01),
    ("champion_reward", "mean_reward", -10.1, -10.11),
])
def test_the_threshold_itself_passes_and_beyond_it_fails(
    name: str, metric: str, at_limit: float, beyond: float
) -> None:
    assert result(name, changed(metric, at_limit)).passed
    failed = result(name, changed(metric, beyond))
    assert not failed.passed
    assert metric in failed.reason
    assert "does not hold" in failed.reason


BROKEN = [math.nan, math.inf, -math.inf, None, "0.9", True, False, [0.9], np.float64("nan"), 1j, 10**400, object()]


@pytest.mark.parametrize("value", BROKEN, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize("metric", list(EVIDENCE["metrics"]))
def test_an_unusable_metric_fails_every_gate_that_reads_it(metric: str, value: Any) -> None:
    for gate in METRIC_GATES:
        if metric in (gate.metric, gate.relative_to):
            assert not result(gate.name, changed(metric, value)).passed


@pytest.mark.parametrize("metric", [name for name in EVIDENCE["metrics"]
                                    if name in METRICS and METRICS[name].lowest == 0])
def test_a_metric_beyond_what_it_can_be_fails_every_gate_that_reads_it(metric: str) -> None:
    for value in (-0.1, METRICS[metric].highest + 0.1):
        for gate in METRIC_GATES:
            if metric in (gate.metric, gate.relative_to):
                assert not result(gate.name, changed(metric, value)).passed


@pytest.mark.parametrize("metric", list(EVIDENCE["metrics"]))
def test_a_missing_metric_fails_every_gate_that_reads_it(metric: str) -> None:
    evidence = copy.deepcopy(EVIDENCE)
    del evidence["metrics"][metric]
    for gate in METRIC_GATES:
        if metric in (gate.metric, gate.relative_to):
            failed = result(gate.name, evidence)
            assert not failed.passed
            assert "it is missing" in failed.reason


def test_a_metric_that_mlflow_yaml_misspells_is_named_with_the_nearest() -> None:
    (failed,) = evaluate_gates(EVIDENCE, None, [replace(GATES["reward"], metric="mean_rewards")]).gates
    assert failed.reason == "mean_rewards must be in the evidence, it is missing; did you mean 'mean_reward'?"


@pytest.mark.parametrize("evidence", [{}, {"metrics": None, "verdict": None}, {"metrics": [], "verdict": []}])
def test_evidence_without_metrics_fails_everything(evidence: dict[str, Any]) -> None:
    for champion in (CHAMPION_MEASURED, None):
        assert not any(gate.passed for gate in evaluate_gates(evidence, champion, list(GATES.values())).gates)


@pytest.mark.parametrize("status", ["REFUTED", "UNKNOWN", "TIMEOUT", "ERROR", "proved", "", None, 1, True])
def test_only_the_verdict_proved_passes(status: Any) -> None:
    assert not result("specification", {**EVIDENCE, "verdict": {"status": status}}).passed


@pytest.mark.parametrize("counts", [None, [], {}, {"mean_reward": 99}, {"mean_reward": "200"}, {"mean_reward": True},
                                    {"mean_reward": 200.0}, {"mean_reward": -200}, {"mean_rewards": 200}])
def test_fewer_cases_than_asked_or_an_unknown_number_of_them_fails(counts: Any) -> None:
    failed = result("reward", {**EVIDENCE, "case_counts": counts})
    assert not failed.passed and "mean_reward must stand on at least 100 cases, got" in failed.reason
    assert result("rules", {**EVIDENCE, "case_counts": counts}).passed, "where a gate asks for none, none are needed"


def test_a_result_says_metric_unit_and_cases() -> None:
    reward, error, latency = (result(name) for name in ("reward", "champion_mse", "latency"))
    assert (reward.metric, reward.unit, reward.cases) == ("mean_reward", "EUR", 200)
    assert (error.metric, error.unit, error.cases) == ("test_mse", "scaled²", 40)
    assert (latency.metric, latency.unit, latency.cases) == ("latency_us", "µs", None)
    assert reward.reason == "mean_reward -10 >= -12.5 holds over 200 cases"
    assert result("rules").reason == "mean_reward -10 >= -11 holds over 200 cases; rule_reward is -11, +0"


@pytest.mark.parametrize(("value", "reference"), [(-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (0.0, 1.0), (1.0, 0.0)])
def test_a_ratio_of_values_that_are_not_above_zero_fails(value: float, reference: float) -> None:
    """-2 is at most 1.05 times -1, and worse than nothing; of a reward a ratio means nothing."""
    for better in ("smaller", "larger"):
        gate = MetricGate("g", "profit", better, 1.0, "ratio", CHAMPION)  # type: ignore[arg-type]
        (failed,) = evaluate_gates({"metrics": {"profit": value}}, {"metrics": {"profit": reference}}, [gate]).gates
        assert not failed.passed and "a ratio compares values above 0" in failed.reason


def test_without_a_champion_its_gate_passes_and_says_so() -> None:
    passed = result("champion_mse", champion=None)
    assert (passed.passed, passed.reason, passed.threshold) == (True, "no champion yet", None)
    few = replace(GATES["champion_mse"], least_cases=41)
    assert not evaluate_gates(EVIDENCE, None, [few]).passed, "the cases are asked for all the same"


@pytest.mark.parametrize(("metric", "gate"), [
    ("test_mse", "baseline_mse"), ("test_accuracy", "test_accuracy"), ("parity_max_abs", "parity"),
    ("counterexample_accuracy", "counterexample_accuracy"), ("latency_us", "latency"), ("mean_reward", "reward"),
])
def test_without_a_champion_every_other_gate_still_has_to_hold(metric: str, gate: str) -> None:
    """The first model of a workload has nobody to beat, and nothing else is let off."""
    worse = changed(metric, 0.01 if "accuracy" in metric else -1e6 if "reward" in metric else 1e6)
    report = evaluate_gates(worse, None, list(GATES.values()))
    failed = [found.name for found in report.gates if not found.passed]
    assert failed == [gate, *({"test_mse": ["mean_baseline"], "mean_reward": ["rules"]}.get(metric, []))]


@pytest.mark.parametrize("champion", [{}, [], "x", {"version": 3}, {"metrics": {"test_mse": math.nan}}, {"metrics": []},
                                      {"metrics": {"test_mse": "1"}}, {"metrics": {"test_mse": -1}}, {"test_mse": 2.0}])
def test_a_champion_without_a_usable_metric_fails_closed(champion: dict[str, Any]) -> None:
    failed = result("champion_mse", champion=champion)
    assert not failed.passed
    assert "the champion's test_mse" in failed.reason


def test_why_the_champion_could_not_be_measured_is_said() -> None:
    failed = result("champion_mse", champion={"version": 3, "metrics": {}, "reason": "its file was exchanged"})
    assert failed.reason.endswith("its file was exchanged")


def test_a_model_that_the_mean_beats_fails_though_boosting_is_as_bad() -> None:
    """1.19 times the error of the training mean: passed every gate, because boosting was no better."""
    evidence = copy.deepcopy(EVIDENCE)
    evidence["metrics"] |= {"test_mse": 1.19, "mean_mse": 1.0, "baseline_mse": 1.2}
    report = evaluate_gates(evidence, None, list(GATES.values()))
    assert [gate.name for gate in report.gates if not gate.passed] == ["mean_baseline"]
    assert "test_mse 1.19 <= 1 does not hold over 40 cases; mean_mse is 1, times 1" in report.gates[4].reason


@pytest.mark.parametrize(("name", "metric", "reference"), [
    ("champion_mse", "test_mse", 1.79e308), ("champion_reward", "mean_reward", -1.79e308)])
def test_a_threshold_that_overflows_does_not_let_everything_through(name: str, metric: str, reference: float) -> None:
    gate = replace(GATES[name], limit=-1.79e308) if "reward" in name else GATES[name]
    assert not evaluate_gates(EVIDENCE, {"metrics": {metric: reference}}, [gate]).passed


def test_the_threshold_reported_is_the_one_applied() -> None:
    assert result("champion_mse").threshold == pytest.approx(1.155)
    assert result("baseline_mse").threshold == pytest.approx(1.35)
    assert result("champion_reward").threshold == pytest.approx(-10.1)
    assert result("latency").threshold == 500.0


def test_a_report_without_gates_cannot_be_made() -> None:
    for make in (lambda: GateReport(()), lambda: evaluate_gates(EVIDENCE, None, []),
                 lambda: GateReport.from_json({"passed": True, "gates": []})):
        with pytest.raises(InputError, match="at least one gate"):
            make()


# Properties of every gate

NUMBERS = st.floats(-1e9, 1e9)
POSITIVE = st.floats(1e-9, 1e9)
UNUSABLE = st.one_of(st.none(), st.text(max_size=3), st.booleans(), st.sampled_from([math.nan, math.inf, -math.inf]))


@st.composite
def gates(draw: st.DrawFn, better: str = "") -> MetricGate:
    """Any gate about a metric without physical limits."""
    compared = draw(st.sampled_from(["value", "ratio", "difference"]))
    relative_to = None if compared == "value" else draw(st.sampled_from([CHAMPION, "baseline"]))
    limit = draw(POSITIVE if compared == "ratio" else NUMBERS)
    return MetricGate("g", "metric", better or draw(st.sampled_from(["smaller", "larger"])),  # type: ignore[arg-type]
                      limit, compared, relative_to, draw(st.integers(0, 3)))


def holds(gate: MetricGate, value: Any, reference: Any = 1.0, cases: Any = 3) -> bool:
    evidence = {"metrics": {"metric": value, "baseline": reference}, "case_counts": {"metric": cases}}
    return evaluate_gates(evidence, {"metrics": {"metric": reference}}, [gate]).passed


@given(gates(), UNUSABLE, NUMBERS)
def test_no_gate_ever_passes_on_a_value_that_is_no_finite_number(gate: MetricGate, broken: Any, number: float) -> None:
    assert not holds(gate, broken, number)
    assert gate.relative_to is None or not holds(gate, number, broken)
    assert not gate.least_cases or not holds(gate, number, number, broken)
    missing = {"metrics": {"baseline": number}, "case_counts": {"metric": 3}}
    assert not evaluate_gates(missing, {"metrics": {"metric": number}}, [gate]).passed
    assert not evaluate_gates(missing, None, [gate]).passed


@given(gates(), POSITIVE, POSITIVE, POSITIVE)
def test_a_better_value_never_fails_where_a_worse_one_holds(
    gate: MetricGate, one: float, other: float, reference: float
) -> None:
    worse, better = sorted((one, other), reverse=gate.better == "smaller")
    assert holds(gate, better, reference) or not holds(gate, worse, reference)


@given(gates(), NUMBERS, NUMBERS, NUMBERS)
def test_of_either_sign_too_where_no_ratio_is_taken(
    gate: MetricGate, one: float, other: float, reference: float
) -> None:
    assume(gate.compared != "ratio")
    worse, better = sorted((one, other), reverse=gate.better == "smaller")
    assert holds(gate, better, reference) or not holds(gate, worse, reference)


@given(gates("smaller"), NUMBERS, NUMBERS)
def test_smaller_and_larger_are_mirror_images(gate: MetricGate, value: float, reference: float) -> None:
    assume(gate.compared != "ratio")
    mirrored = replace(gate, better="larger", limit=-gate.limit)
    assert holds(gate, value, reference) == holds(mirrored, -value, -reference)


@given(gates("smaller"), POSITIVE, POSITIVE)
def test_a_ratio_of_smaller_is_broken_by_what_a_ratio_of_larger_keeps(
    gate: MetricGate, value: float, reference: float
) -> None:
    assume(gate.compared == "ratio" and value != reference * gate.limit)
    assert holds(gate, value, reference) != holds(replace(gate, better="larger"), value, reference)


@given(gates(), NUMBERS, NUMBERS, st.integers(0, 3), st.integers(0, 3))
def test_more_cases_never_hurt(gate: MetricGate, value: float, reference: float, few: int, more: int) -> None:
    few, more = sorted((few, more))
    assert holds(gate, value, reference, more) or not holds(gate, value, reference, few)


# gates.json

VALUES = st.one_of(st.floats(), st.none(), st.text(max_size=3), st.booleans(), st.integers())


@given(
    metrics=st.dictionaries(st.sampled_from(list(EVIDENCE["metrics"])), VALUES),
    champion=st.one_of(st.none(), st.fixed_dictionaries({"metrics": st.fixed_dictionaries({"test_mse": VALUES})})),
    status=VALUES, counts=VALUES, units=VALUES,
)
def test_any_evidence_gives_a_report_that_round_trips_as_strict_json(
    metrics: dict[str, Any], champion: dict[str, Any] | None, status: Any, counts: Any, units: Any
) -> None:
    evidence = {"metrics": metrics, "verdict": {"status": status}, "units": {"mean_reward": units},
                "case_counts": {"mean_reward": counts}}
    report = evaluate_gates(evidence, champion, list(GATES.values()))
    text = json.dumps(report.to_json(), allow_nan=False)
    assert GateReport.from_json(json.loads(text)) == report
    usable = [m for m, v in metrics.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if not set(EVIDENCE["metrics"]) <= {m for m in usable if math.isfinite(metrics[m])} or status != "PROVED":
        assert not report.passed


def whole_report() -> dict[str, Any]:
    return evaluate_gates(EVIDENCE, CHAMPION_MEASURED, list(GATES.values())).to_json()


@pytest.mark.parametrize(("path", "value", "message"), [
    (("passed",), False, "passed: expected True"),
    (("passed",), "True", "passed: expected True"),
    (("gates",), {}, "gates: expected a list"),
    (("gates", 0), 3, "expected a mapping of cases"),
    (("gates", 0, "passed"), 1, "passed: expected true or false"),
    (("gates", 0, "comparison"), ">", "comparison: expected"),
    (("gates", 0, "name"), "latency", "expected every gate once"),
    (("gates", 1, "value"), [], "value: expected"),
    (("gates", 1, "threshold"), True, "threshold: expected"),
    (("gates", 1, "reason"), None, "reason: expected a text"),
    (("gates", 1, "metric"), 1, "metric: expected a text"),
    (("gates", 1, "unit"), None, "unit: expected a text"),
    (("gates", 1, "cases"), 1.5, "cases: expected a whole number"),
    (("gates", 1, "cases"), -1, "cases: expected a whole number"),
])
def test_a_damaged_report_is_refused(path: tuple[Any, ...], value: Any, message: str) -> None:
    data = whole_report()
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(InputError, match=message):
        GateReport.from_json(data)


def test_a_report_with_an_unknown_or_missing_key_is_refused() -> None:
    data = whole_report()
    with pytest.raises(InputError, match="did you mean 'passed'"):
        GateReport.from_json({**data, "pased": True})
    del data["gates"][2]["unit"]
    with pytest.raises(InputError, match="expected the key 'unit'"):
        GateReport.from_json(data)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5)


@given(value=JSON, gate=st.integers(0, len(LINES) - 1), key=st.sampled_from(list(GateResult.__dataclass_fields__)))
def test_any_json_in_any_place_of_a_report_is_read_or_refused_and_nothing_else(value: Any, gate: int, key: str) -> None:
    data = whole_report()
    data["gates"][gate][key] = value
    try:
        report = GateReport.from_json(data)
    except InputError:
        return
    json.dumps(report.to_json(), allow_nan=False)


@given(evidence=JSON, champion=JSON)
def test_any_json_as_evidence_or_champion_gives_a_report(evidence: Any, champion: Any) -> None:
    metrics = dict.fromkeys(EVIDENCE["metrics"], evidence)
    for data in ({"metrics": evidence, "verdict": evidence, "case_counts": evidence, "units": evidence},
                 {"metrics": metrics, "verdict": {"status": evidence}}):
        for standing in (None, {"version": 1, "metrics": champion}, {"metrics": {"test_mse": champion}}):
            report = evaluate_gates(data, standing, list(GATES.values()))
            json.dumps(report.to_json(), allow_nan=False)
            assert not report.passed


def test_the_verdicts_gate_is_named_specification() -> None:
    assert GATES["specification"] == VerdictGate()


@pytest.mark.parametrize(("name", "sign"), [("champion_mse", 1.0), ("champion_reward", -1.0)])
def test_who_is_worse_by_luck_alone_is_not_rejected_and_who_is_worse_is(name: str, sign: float) -> None:
    """Both are worse than the gate allows by the same mean: one in a single case, the other in each."""
    rng = np.random.default_rng(0)
    old = rng.exponential(size=150) + 1
    worse = 0.5 + 0.2 * old
    lucky = old + np.where(np.arange(150) == 70, worse.sum(), 0.0)
    rejected = paired(name, list(sign * (old + worse)), list(sign * old))
    kept = paired(name, list(sign * lucky), list(sign * old))
    assert not rejected.passed and rejected.reason.startswith(f"{rejected.metric} ")
    limit = "times 1.05" if sign > 0 else "-0.5"
    assert kept.passed and kept.reason.endswith(
        f"does not hold over 150 cases; the champion's {kept.metric} is {sign * old.mean():.6g}, {limit}; by no more "
        "than luck explains, which rejects nobody")
    assert kept.value == pytest.approx(rejected.value)
    other = paired(name, list(sign * lucky), list(sign * old), "1" * 64)
    assert not other.passed, "other cases are not compared case by case"


def test_a_metric_that_no_case_bears_decides_by_itself() -> None:
    gate = MetricGate("steady", "parity_max_abs", "smaller", 1.05, "ratio", CHAMPION)
    cases = Cases("q", "test_mse", "smaller", "u", (1.0,) * 40, "0" * 64).to_json()
    evidence = {"metrics": {"parity_max_abs": 2e-6, "test_mse": 1.0}, "case_counts": {"test_mse": 40}, "cases": cases}
    champion = {"metrics": {"parity_max_abs": 1e-6, "test_mse": 1.0}, "cases": cases}
    assert not evaluate_gates(evidence, champion, [gate]).passed
