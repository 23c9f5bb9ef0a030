"""A line of mlflow.yaml says everything about its gate; nonsense is refused with the nearest sensible hint."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.configuration import load_configuration
from models.gate_report import evaluate_gates
from models.gates import LIMITS, MetricGate, VerdictGate, parse_gate, parse_gates
from models.metrics import METRICS
from models.tasks.control.comparing import against, figures
from models.tasks.control.judging import Played
from models.tasks.task import load_task

ERROR = {"metric": "test_mse", "better": "smaller"}
REWARD = {"metric": "mean_reward", "better": "larger"}


@pytest.mark.parametrize(("line", "gate"), [
    ({**ERROR, "at_most": 0.1}, MetricGate("g", "test_mse", "smaller", 0.1)),
    ({**ERROR, "relative_to": "champion", "at_most_ratio": 1.05, "least_cases": 30},
     MetricGate("g", "test_mse", "smaller", 1.05, "ratio", "champion", 30)),
    ({**REWARD, "at_least": -12.5, "least_cases": 100},
     MetricGate("g", "mean_reward", "larger", -12.5, "value", None, 100)),
    ({**REWARD, "relative_to": "rule_reward", "at_least_difference": 0},
     MetricGate("g", "mean_reward", "larger", 0.0, "difference", "rule_reward")),
    ({**REWARD, "relative_to": "champion", "at_least_difference": -0.5},
     MetricGate("g", "mean_reward", "larger", -0.5, "difference", "champion")),
    ({"metric": "test_accuracy", "better": "larger", "relative_to": "baseline_accuracy", "at_least_ratio": 0.9},
     MetricGate("g", "test_accuracy", "larger", 0.9, "ratio", "baseline_accuracy")),
])
def test_a_line_is_read(line: dict[str, Any], gate: MetricGate) -> None:
    assert parse_gate("g", line, "mlflow.yaml, gates.t") == gate


def test_the_verdict_is_a_gate_of_its_own() -> None:
    assert parse_gates({"specification": {"verdict": "PROVED"}, "g": {**ERROR, "at_most": 1}}, "gates.t") == (
        VerdictGate(), MetricGate("g", "test_mse", "smaller", 1.0))


@pytest.mark.parametrize(("name", "line", "message"), [
    ("g", 500, r"expected a mapping such as \{metric: .*\}, got 500 \(gates\.t\.g\)"),
    ("specification", "PROVED", r"expected a mapping such as \{verdict: PROVED\}, got 'PROVED'"),
    ("specification", {}, "expected the key 'verdict', got none"),
    ("specification", {"verdict": "UNKNOWN"}, "verdict: expected PROVED, got 'UNKNOWN' .*; no other verdict may be"),
    ("specification", {**ERROR, "at_most": 1}, "unknown key 'metric'"),
    ("specificaton", {"verdict": "PROVED"}, "verdict belongs to the gate 'specification', got it in 'specificaton'"),
    ("a gate", {**ERROR, "at_most": 1}, "expected a gate's name of letters, digits, _ and -, got 'a gate'"),
    (3, {**ERROR, "at_most": 1}, "expected a gate's name .*, got 3"),
    ("g", {**ERROR, "at_mots": 1}, "unknown key 'at_mots' .*did you mean 'at_most'"),
    ("g", {**ERROR, "maximum_ratio": 1}, "unknown key 'maximum_ratio' .*did you mean 'at_most_ratio'"),
    ("g", {"better": "smaller", "at_most": 1}, "expected the key 'metric', got better, at_most"),
    ("g", {"metric": "test_mse", "at_most": 1}, "expected the key 'better'"),
    ("g", {**ERROR, "metric": ["test_mse"], "at_most": 1}, "metric: expected the name of a metric"),
    ("g", {**ERROR, "better": "lower", "at_most": 1}, "better: expected smaller or larger, got 'lower'"),
    ("g", {**ERROR, "better": "smalller", "at_most": 1}, "did you mean 'smaller'"),
    ("g", ERROR, r"expected one limit \(at_most, at_most_ratio, at_most_difference\), got none"),
    ("g", {**ERROR, "at_most": 1, "at_most_ratio": 1}, "expected one limit .*, got at_most and at_most_ratio"),
    ("g", {**ERROR, "at_least": 1}, "at_least contradicts better: smaller .*did you mean 'at_most', or better: larger"),
    ("g", {**REWARD, "relative_to": "champion", "at_most_ratio": 1}, "did you mean 'at_least_ratio'"),
    ("g", {**ERROR, "at_most": 1, "relative_to": "champion"},
     "at_most is an absolute limit, got it with relative_to: champion .*did you mean at_most_ratio or"),
    ("g", {**ERROR, "at_most_ratio": 1}, "at_most_ratio needs relative_to: champion, .*absolute limit write at_most"),
    ("g", {**ERROR, "at_most_ratio": 1, "relative_to": "test_mse"}, "the gate's own, test_mse .*relative_to: champion"),
    ("g", {**ERROR, "at_most_ratio": 1, "relative_to": 3}, "relative_to: expected the name of a metric"),
    ("g", {**ERROR, "at_most_ratio": 0, "relative_to": "champion"},
     "at_most_ratio: expected a number above 0, got 0 .*use at_most_difference"),
    ("g", {**ERROR, "at_most": "1e-4"}, "expected a finite number, got '1e-4' .*write 0.0001"),
    ("g", {**ERROR, "at_most": math.nan}, "at_most: expected a finite number, got nan"),
    ("g", {**ERROR, "at_most": -math.inf}, "at_most: expected a finite number"),
    ("g", {**ERROR, "at_most": True}, "at_most: expected a finite number, got True"),
    ("g", {**ERROR, "at_most": 10**400}, "at_most: expected a finite number"),
    ("g", {**ERROR, "at_most": -1}, "at_most: expected 0 or more, all that test_mse can be, got -1"),
    ("g", {"metric": "test_accuracy", "better": "larger", "at_least": 50}, r"expected 0\.\.1, all that test_accuracy"),
    ("g", {**ERROR, "better": "larger", "at_least": 0}, "better: expected smaller, which is better of test_mse, got"),
    ("g", {"metric": "test_accuracy", "better": "smaller", "at_most": 1}, "better: expected larger, .* test_accuracy"),
    ("g", {**ERROR, "at_most_ratio": 1, "relative_to": "Champion"}, "got 'Champion' .*did you mean 'champion'"),
    ("g", {**ERROR, "at_most": 1, "least_cases": 0}, "least_cases: expected a whole number from 1, got 0"),
    ("g", {**ERROR, "at_most": 1, "least_cases": 1.5}, "least_cases: expected a whole number from 1, got 1.5"),
    ("g", {**ERROR, "at_most": 1, "least_cases": True}, "least_cases: expected a whole number from 1, got True"),
])
def test_a_line_that_means_nothing_is_refused(name: Any, line: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        parse_gate(name, line, "gates.t")
    assert "gates.t" in str(refused.value), "it says where"


@pytest.mark.parametrize("mapping", [None, [], 3, {}])
def test_a_table_without_gates_is_refused(mapping: Any) -> None:
    with pytest.raises(InputError, match=r"expected (a mapping of gates|at least one gate)"):
        parse_gates(mapping, "gates.t")


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4),
                    st.sampled_from(["test_mse", "champion", "smaller", "larger", "PROVED"]))
ANYTHING = st.one_of(SCALARS, st.lists(st.integers(), max_size=2))
KEYS = st.one_of(st.sampled_from(["metric", "better", "relative_to", "least_cases", "verdict", *LIMITS]), SCALARS)


@given(name=st.one_of(st.just("g"), st.just("specification"), ANYTHING),
       line=st.one_of(ANYTHING, st.dictionaries(KEYS, ANYTHING, max_size=5)))
def test_anything_is_a_gate_or_one_line_of_error(name: Any, line: Any) -> None:
    try:
        gate = parse_gate(name, line, "gates.t")
    except InputError as error:
        assert "\n" not in str(error)
        return
    if isinstance(gate, MetricGate):
        assert math.isfinite(gate.limit) and (gate.relative_to is None) == (gate.compared == "value")
        assert LIMITS[next(key for key in LIMITS if key in line)] == (gate.better, gate.compared)


@pytest.mark.parametrize(("line", "message"), [
    ({"metric": "violating_shares", "better": "smaller", "at_most": 0.1},
     "metric: expected a known metric, got 'violating_shares' .*did you mean 'violating_share'.*say the unit"),
    ({"metric": "mean_reward", "better": "larger", "relative_to": "rules_reward", "at_least_difference": 0},
     "relative_to: expected a known metric, got 'rules_reward' .*did you mean 'rule_reward'"),
    ({"metric": "violating_share", "better": "larger", "at_least": 0.1}, "better: expected smaller, which is better"),
    ({"metric": "mean_reward", "better": "smaller", "at_most": 1}, "better: expected larger, which is better"),
    ({"metric": "own_cost_saved_lower", "better": "larger", "at_least": 1.5}, "at_least: expected"),
    ({"metric": "violating_share", "better": "smaller", "at_most": 2}, r"at_most: expected 0\.\.1, all that"),
    ({"metric": "mean_reward", "better": "larger", "relative_to": "champion", "at_least_ratio": 0.9},
     "at_least_ratio: expected a metric above 0, got mean_reward, which may be negative .*use at_least_difference"),
    ({"metric": "test_mse", "better": "smaller", "relative_to": "baseline_mae", "at_most_ratio": 1.0},
     "relative_to: expected a metric in scaled², as test_mse is, got baseline_mae in scaled"),
    ({"metric": "stalls", "better": "smaller", "relative_to": "latency_us", "at_most_ratio": 1.0, "unit": "ms"},
     "relative_to: expected a metric in ms, as stalls is, got latency_us in µs"),
    ({"metric": "latency_us", "better": "smaller", "at_most": 3, "unit": "ms"}, "unit: expected µs, in which"),
    ({"metric": "stalls", "better": "smaller", "at_most": 3, "unit": ""}, "unit: expected a text, such as ms"),
])
def test_metrics_are_typed(line: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_gate("mine", line, "mlflow.yaml: gates.own")


def test_a_metric_of_ones_own_says_its_unit_and_so_must_the_evidence() -> None:
    gate = parse_gate("stalls", {"metric": "stalls", "better": "smaller", "at_most": 3, "unit": "1/h"}, "mlflow.yaml")
    evidence: dict[str, Any] = {"metrics": {"stalls": 2.0}, "units": {"stalls": "1/h"}}
    assert evaluate_gates(evidence, None, [gate]).passed
    for units in ({}, {"stalls": "1/d"}):
        (found,) = evaluate_gates({**evidence, "units": units}, None, [gate]).gates
        assert not found.passed and found.reason.startswith("stalls must be in 1/h as its gate says, got ")


def test_every_gate_that_ships_is_of_a_known_metric_and_every_metric_of_a_controller_is_known() -> None:
    gates = load_configuration(Path(__file__).parents[2] / "mlflow.yaml", {}).gates
    assert {gate.metric for task in ("performance", "sizing", "autoscaling", "default") for gate in gates[task]
            if isinstance(gate, MetricGate)} <= set(METRICS)
    empty = np.zeros((1, 40, 1), dtype=np.float32)
    played = Played(np.ones(40), np.ones(40), np.zeros(40), {}, empty, empty, {})
    of_rules = against(load_task("autoscaling"), played, {"static": played}, "")[1]  # type: ignore[arg-type]
    names = {*figures(played), *(f"{prefix}{name}" for name in of_rules for prefix in ("", "own_", "generic_"))}
    assert names <= set(METRICS)
    assert all(METRICS[name].holds(value) for name, value in {**figures(played), **of_rules}.items())
