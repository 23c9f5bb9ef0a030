"""Which parts are asked for, and what is told of them."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from feature_store.errors import InputError
from models.tasks.task import load_task
from systems.autoscaling.benchmarks import against_rules
from systems.autoscaling.benchmarks import against_rules_parts as parts
from systems.autoscaling.benchmarks.cases import AS_TRAINED, CASES
from systems.autoscaling.benchmarks.fronts import Front

COST = {"a": 4.0, "b": 3.0, "c": 5.0, "d": 6.0, "never": 1.0}  # of rules at 2 %
VIOLATED = np.array([0.01, 0.02, 0.04])


def front(cost: float, violated: np.ndarray = VIOLATED) -> dict:
    """Of three settings and two applications: the cost falls as violations rise."""
    figures = {name: np.tile((cost * 0.02 / violated)[:, None], 2) for name in parts.JUDGED}
    figures["violated"] = figures["violated_requests"] = np.tile(violated[:, None], 2)
    return Front(tuple(map(str, violated)), figures).document()


def made(function, *arguments):
    if function is parts.rule:
        name = arguments[2]
        return {"settings": [{"of": name}], "front": front(COST[name], VIOLATED / (100 if name == "never" else 1))}
    if function is parts.policies:
        places = (AS_TRAINED, *CASES) if arguments[2] == parts.CHALLENGER else (AS_TRAINED,)
        return {"seconds": 7.0, "fronts": {place: [front(2.4), front(2.4)] for place in places}}
    assert arguments[3] == [{"of": arguments[2]}], "the settings that were found for that rule"
    if function is parts.each_application:
        return front(2.0 * 0.02 / arguments[-1], np.array([arguments[-1]]))
    assert function is parts.rule_in_case and arguments[-1] in CASES
    return front(2.0 * COST[arguments[2]])


def measured(monkeypatch: pytest.MonkeyPatch, rules: list[str], forms: list[str]) -> tuple[dict, list[str]]:
    asked = []

    def kept(folder, wanted, count, check):
        assert (folder, count, check) == (Path("work"), 3, print)
        asked.extend(wanted)
        return {name: made(*part) for name, part in wanted.items()}

    monkeypatch.setattr(against_rules, "kept_parts", kept)
    options = Namespace(rules=rules, forms=forms, seeds=2, effort=1.0, budget=1.0, data_folder=None, jobs=3)
    return against_rules.measure(["made"], options, Path("work"), print)["made"], asked


def test_the_best_rules_go_on_to_other_cases_and_the_best_to_each_application(monkeypatch):
    found, asked = measured(monkeypatch, list(COST), ["proved", "linear"])

    assert {name for name in asked if "each" in name} == {f"made-each-b-{target:g}" for target in parts.TARGETS}
    assert {name for name in asked if name.startswith("made-ramps")} == {f"made-ramps-rule-{name}" for name in "abc"}
    assert found["each"]["rule"] == "b" and found["each"]["at_share"]["cost"] == pytest.approx(2.0)
    proved = found["policies"]["proved"]
    assert proved["cost_saved"]["mean"] == pytest.approx(0.2) and proved["best_rule"] == "b"
    assert proved["cost_saved_each"]["mean"] == pytest.approx(-0.2)
    assert (proved["policies"], proved["provable"], found["policies"]["linear"]["linear"]) == (10, True, True)
    own, ramps = found["cases"][AS_TRAINED], found["cases"]["ramps"]
    assert own["rules"].keys() == ramps["rules"].keys() == {"a", "b", "c"}
    assert own["rules"]["b"]["steps"]["0.02"] == pytest.approx(3.0)
    assert ramps["rules"]["b"]["steps"]["0.02"] == pytest.approx(6.0) and len(ramps["policies"]) == 2


def test_without_proved_policies_no_case_is_asked_for(monkeypatch):
    found, asked = measured(monkeypatch, ["a", "b"], ["linear"])

    assert "cases" not in found and not any(case in name for name in asked for case in CASES)


def test_a_task_file_that_changed_meanwhile_ends_the_measurement(monkeypatch, tmp_path):
    task = load_task("autoscaling")
    other = task.model_copy(update={"training": task.training.model_copy(update={"rounds": task.training.rounds + 1})})
    # read for the result, for the parts' folder, and before each of two parts is kept
    tasks = iter([task, task, task, other])
    monkeypatch.setattr(against_rules, "load_task", lambda name: next(tasks))
    kept = []

    def kept_parts(folder, wanted, count, check):
        for name in wanted:
            check()
            kept.append(name)
        return {}

    monkeypatch.setattr(against_rules, "kept_parts", kept_parts)
    options = Namespace(rules=["feedforward-p99"], forms=["linear"], seeds=1, effort=1.0, budget=1.0, data_folder=None,
                        jobs=1, loads=["made"], output=tmp_path / "results.json", work=tmp_path)
    with pytest.raises(InputError, match="the code or the task file was changed while parts were made"):
        against_rules.run(options)
    assert kept == ["made-policies-linear"], "what was made before the change is kept, what came after it is not"
    assert not options.output.exists()


def test_rules_of_which_none_reaches_the_share_are_refused(monkeypatch):
    with pytest.raises(InputError, match="got none among never"):
        measured(monkeypatch, ["never"], ["linear"])
