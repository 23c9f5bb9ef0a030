"""Gates fail closed: whatever cannot be evaluated does not pass."""

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.gates import GATES, GateReport, GateResult, evaluate_gates

THRESHOLDS: dict[str, dict[str, Any]] = {
    "specification": {"verdict": "PROVED"},
    "test_accuracy": {"minimum": 0.5},
    "champion_mse": {"maximum_ratio": 1.05},
    "baseline_mse": {"maximum_ratio": 1.5},
    "mean_baseline": {"maximum_ratio": 1.0},
    "test_rows": {"minimum": 30},
    "counterexample_accuracy": {"minimum": 1.0},
    "parity": {"maximum": 0.0001},
    "latency": {"maximum_us": 500},
}
EVIDENCE: dict[str, Any] = {
    "metrics": {
        "test_mse": 1.0,
        "test_accuracy": 0.8,
        "counterexample_accuracy": 1.0,
        "baseline_mse": 0.9,
        "mean_mse": 1.4,
        "test_rows": 40,
        "parity_max_abs": 1e-6,
        "latency_us": 12.0,
    },
    "verdict": {"status": "PROVED"},
}
CHAMPION: dict[str, Any] = {"test_mse": 1.1, "version": 3}


def result(name: str, evidence: Any = None, champion: Any = CHAMPION, thresholds: Any = None) -> GateResult:
    thresholds = thresholds or {name: THRESHOLDS[name]}
    return evaluate_gates(evidence or EVIDENCE, champion, thresholds).gates[0]


def changed(metric: str, value: Any) -> dict[str, Any]:
    evidence = copy.deepcopy(EVIDENCE)
    evidence["metrics"][metric] = value
    return evidence


def test_all_gates_hold_and_keep_the_order_of_the_configuration() -> None:
    report = evaluate_gates(EVIDENCE, CHAMPION, THRESHOLDS)
    assert report.passed
    assert [gate.name for gate in report.gates] == list(THRESHOLDS)
    assert all(gate.passed and gate.reason for gate in report.gates)


@pytest.mark.parametrize(
    ("name", "metric", "at_limit", "beyond"),
    [
        ("test_accuracy", "test_accuracy", 0.5, 0.4999),
        ("champion_mse", "test_mse", 1.1 * 1.05, 1.1551),
        ("baseline_mse", "test_mse", 0.9 * 1.5, 1.3501),
        ("mean_baseline", "test_mse", 1.4, 1.4001),
        ("test_rows", "test_rows", 30, 29),
        ("counterexample_accuracy", "counterexample_accuracy", 1.0, 0.9999),
        ("parity", "parity_max_abs", 0.0001, 0.000101),
        ("latency", "latency_us", 500, 500.1),
    ],
)
def test_the_threshold_itself_passes_and_beyond_it_fails(
    name: str, metric: str, at_limit: float, beyond: float
) -> None:
    assert result(name, changed(metric, at_limit)).passed
    failed = result(name, changed(metric, beyond))
    assert not failed.passed
    assert metric in failed.reason
    assert "does not hold" in failed.reason


BROKEN = [
    math.nan,
    math.inf,
    -math.inf,
    -0.1,
    None,
    "0.9",
    True,
    False,
    [0.9],
    np.float64("nan"),
    1j,
    10**400,
    object(),
]


@pytest.mark.parametrize("value", BROKEN, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize("metric", list(EVIDENCE["metrics"]))
def test_an_unusable_metric_fails_every_gate_that_reads_it(metric: str, value: Any) -> None:
    for name, gate in GATES.items():
        if metric in (gate.metric, gate.relative_to):
            assert not result(name, changed(metric, value)).passed


@pytest.mark.parametrize("metric", list(EVIDENCE["metrics"]))
def test_a_missing_metric_fails_every_gate_that_reads_it(metric: str) -> None:
    evidence = copy.deepcopy(EVIDENCE)
    del evidence["metrics"][metric]
    for name, gate in GATES.items():
        if metric in (gate.metric, gate.relative_to):
            failed = result(name, evidence)
            assert not failed.passed
            assert "it is missing" in failed.reason


@pytest.mark.parametrize("evidence", [{}, {"metrics": None, "verdict": None}, {"metrics": [], "verdict": []}])
def test_evidence_without_metrics_fails_everything(evidence: dict[str, Any]) -> None:
    assert not any(gate.passed for gate in evaluate_gates(evidence, CHAMPION, THRESHOLDS).gates)
    assert not any(gate.passed for gate in evaluate_gates(evidence, None, THRESHOLDS).gates)


@pytest.mark.parametrize("status", ["REFUTED", "UNKNOWN", "TIMEOUT", "ERROR", "proved", "", None, 1, True])
def test_only_the_verdict_proved_passes(status: Any) -> None:
    assert not result("specification", {**EVIDENCE, "verdict": {"status": status}}).passed


def test_without_a_champion_its_gate_passes_and_says_so() -> None:
    passed = result("champion_mse", champion=None)
    assert (passed.passed, passed.reason, passed.threshold) == (True, "no champion yet", None)


@pytest.mark.parametrize(
    ("metric", "gate"),
    [
        ("test_mse", "baseline_mse"),
        ("test_accuracy", "test_accuracy"),
        ("counterexample_accuracy", "counterexample_accuracy"),
        ("parity_max_abs", "parity"),
        ("latency_us", "latency"),
    ],
)
def test_without_a_champion_every_other_gate_still_has_to_hold(metric: str, gate: str) -> None:
    """The first model of a workload has nobody to beat, and nothing else is let off."""
    worse = changed(metric, 0.01 if "accuracy" in metric else 1e6)
    report = evaluate_gates(worse, None, THRESHOLDS)
    failed = [found.name for found in report.gates if not found.passed]
    assert failed == ([gate, "mean_baseline"] if metric == "test_mse" else [gate])


@pytest.mark.parametrize(
    "champion", [{}, {"version": 3}, {"test_mse": math.nan}, {"test_mse": "1"}, {"test_mse": -1}]
)
def test_a_champion_without_a_usable_mse_fails_closed(champion: dict[str, Any]) -> None:
    failed = result("champion_mse", champion=champion)
    assert not failed.passed
    assert "the champion's test_mse" in failed.reason


def test_a_model_that_the_mean_beats_fails_though_boosting_is_as_bad() -> None:
    """35 test rows, 1.19 times the error of the training mean: passed every gate, because boosting was no better."""
    evidence = copy.deepcopy(EVIDENCE)
    evidence["metrics"] |= {"test_mse": 1.19, "mean_mse": 1.0, "baseline_mse": 1.2, "test_rows": 35}
    report = evaluate_gates(evidence, None, THRESHOLDS)
    assert [gate.name for gate in report.gates if not gate.passed] == ["mean_baseline"]
    assert "test_mse 1.19 <= 1 does not hold; mean_mse has 1" in report.gates[4].reason


def test_a_threshold_that_overflows_does_not_let_everything_through() -> None:
    assert not result("champion_mse", champion={"test_mse": 1.79e308, "version": 1}).passed


def test_the_threshold_reported_is_the_one_applied() -> None:
    assert result("champion_mse").threshold == pytest.approx(1.155)
    assert result("baseline_mse").threshold == pytest.approx(1.35)
    assert result("latency").threshold == 500.0


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({}, "at least one gate, got none"),
        ({"latencey": {"maximum_us": 1}}, "did you mean 'latency'"),
        ({"latency": {"maximum": 1}}, "did you mean 'maximum_us'"),
        ({"latency": {}}, "'maximum_us' must be given"),
        ({"latency": 500}, "must be a mapping"),
        ({"latency": {"maximum_us": "1e-4"}}, "write 0.0001"),
        ({"latency": {"maximum_us": math.nan}}, "must be a finite number"),
        ({"latency": {"maximum_us": True}}, "must be a finite number"),
        ({"latency": {"maximum_us": -1}}, "must be a finite number"),
        ({"test_accuracy": {"minimum": 50}}, "up to 1"),
        ({"specification": {"verdict": "UNKNOWN"}}, "no other verdict may be promoted"),
    ],
)
def test_an_unusable_threshold_table_is_refused(thresholds: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate_gates(EVIDENCE, CHAMPION, thresholds)


def test_a_report_without_gates_cannot_be_made() -> None:
    with pytest.raises(InputError, match="at least one gate"):
        GateReport(())
    with pytest.raises(InputError, match="at least one gate"):
        GateReport.from_json({"passed": True, "gates": []})


VALUES = st.one_of(st.floats(), st.none(), st.text(max_size=3), st.booleans(), st.integers())


@given(
    metrics=st.dictionaries(st.sampled_from(list(EVIDENCE["metrics"])), VALUES),
    champion=st.one_of(st.none(), st.fixed_dictionaries({"test_mse": VALUES, "version": st.integers(1)})),
    status=VALUES,
)
def test_any_evidence_gives_a_report_that_round_trips_as_strict_json(
    metrics: dict[str, Any], champion: dict[str, Any] | None, status: Any
) -> None:
    report = evaluate_gates({"metrics": metrics, "verdict": {"status": status}}, champion, THRESHOLDS)
    text = json.dumps(report.to_json(), allow_nan=False)
    assert GateReport.from_json(json.loads(text)) == report
    usable = [m for m, v in metrics.items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if not set(EVIDENCE["metrics"]) <= {m for m in usable if math.isfinite(metrics[m])} or status != "PROVED":
        assert not report.passed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("passed",), False, "passed must be True"),
        (("passed",), "True", "passed must be True"),
        (("gates",), {}, "must be a list"),
        (("gates", 0, "passed"), 1, "must be true or false"),
        (("gates", 0, "comparison"), ">", "comparison must be"),
        (("gates", 0, "name"), "latency", "must be unique"),
        (("gates", 1, "value"), [], "value must be"),
        (("gates", 1, "threshold"), True, "threshold must be"),
        (("gates", 1, "reason"), None, "must be text"),
    ],
)
def test_a_damaged_report_is_refused(path: tuple[Any, ...], value: Any, message: str) -> None:
    data = evaluate_gates(EVIDENCE, CHAMPION, THRESHOLDS).to_json()
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(InputError, match=message):
        GateReport.from_json(data)


def test_a_report_with_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    data = evaluate_gates(EVIDENCE, CHAMPION, THRESHOLDS).to_json()
    with pytest.raises(InputError, match="did you mean 'passed'"):
        GateReport.from_json({**data, "pased": True})


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(value=JSON, gate=st.integers(0, len(THRESHOLDS) - 1), key=st.sampled_from(list(GateResult.__dataclass_fields__)))
def test_any_json_in_any_place_of_a_report_is_read_or_refused_and_nothing_else(
    value: Any, gate: int, key: str
) -> None:
    data = evaluate_gates(EVIDENCE, CHAMPION, THRESHOLDS).to_json()
    data["gates"][gate][key] = value
    try:
        report = GateReport.from_json(data)
    except InputError:
        return
    json.dumps(report.to_json(), allow_nan=False)


@given(evidence=JSON, champion=JSON)
def test_any_json_as_evidence_or_champion_gives_a_report(evidence: Any, champion: Any) -> None:
    metrics = dict.fromkeys(EVIDENCE["metrics"], evidence)
    for data in (
        {"metrics": evidence, "verdict": evidence},
        {"metrics": metrics, "verdict": {"status": evidence}},
    ):
        for standing in (None, {"version": 1, "test_mse": champion}):
            report = evaluate_gates(data, standing, THRESHOLDS)
            json.dumps(report.to_json(), allow_nan=False)
            assert not report.passed
