"""What training saw of a workload, as its contract says it: the held-out part of its load is in it, others are not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy, PolicyShape
from models.control.simulation.rollout import acting_of
from models.tasks.control.judging import play
from models.tasks.control.scoring import Score
from models.tasks.control.seen import MARGIN, seen_in_training
from models.tasks.control.tuned_rule import TunedRule
from models.tasks.task import load_task
from models.training.seeds import seeded
from serving.seen_spec import Familiar, seen_spec
from systems.autoscaling.interface import FEATURES, SIGNALS
from systems.autoscaling.twin.twin import twin

NAMES = [signal.name for signal in SIGNALS]
COUNT, STEPS = 48, 80


def _twin(**settings: Any) -> Any:
    """Three days of a smooth load, the third a bit higher."""
    minutes = np.arange(3 * 1440)
    rate = 60.0 * (1.0 + 0.6 * np.sin(2 * np.pi * minutes / 1440) + 0.05 * minutes // 1440)
    telemetry = pd.DataFrame({"window_start": pd.date_range("2026-01-01", periods=len(rate), freq="60s", tz="UTC"),
                              "window_s": 60.0, "rate_rps": rate})
    return twin(telemetry, {"slo_ms": 200.0, "cpu_ms": 20.0, **settings}, {})


def _policy() -> Any:
    shape = PolicyShape(SIGNALS, environment_of("autoscaling").controls, FEATURES, (8,),
                        anchors=environment_of("autoscaling").anchors)
    policy = Policy(shape, seeded(1))
    return lambda observation, seconds: policy(observation)


@pytest.fixture(scope="module")
def made() -> tuple[Any, dict[str, Any], Familiar]:
    task = load_task("autoscaling")
    task = task.model_copy(update={"judging": task.judging.model_copy(update={"episodes": COUNT, "steps": STEPS})})
    environment, rules = _twin(), {"hpa-cpu": TunedRule("hpa-cpu", {}, Score(0.0, 0.0, 0.0, 0.0), 1)}
    said = seen_in_training(task, environment, _policy(), rules)
    assert said == seen_in_training(task, environment, _policy(), rules)
    return environment, said, Familiar(seen_spec(said, NAMES), {one.name: one.high - one.low for one in SIGNALS})


def _flagged(environment: Any, familiar: Familiar, split: str = "held_out", times: float = 1.0,
             acting: Any = None) -> float:
    episodes = environment.draw(split, COUNT, STEPS, 7)
    observed = play(environment, replace(episodes, rate=episodes.rate * times), STEPS,
                    acting or _policy()).observations
    return float(familiar.beyond(observed.reshape(-1, len(NAMES))).any(axis=1).mean())


def test_signals_and_products_of_signals_have_ranges(made: Any) -> None:
    _, said, familiar = made
    assert said["margin"] == MARGIN
    # since when replicas are what they are, nobody knows after a start
    assert set(NAMES) - {"raised_s_ago"} < set(familiar.names)
    assert all("raised_s_ago" not in one["terms"] for one in said["ranges"])
    assert "load a core" in familiar.names
    assert {one["name"]: one["maximum"] for one in said["ranges"]}["slo_ms"] == 200.0


def test_the_later_load_is_no_false_alarm(made: Any) -> None:
    environment, _, familiar = made
    assert _flagged(environment, familiar) < 0.002


def test_a_rule_that_hands_over_is_no_false_alarm(made: Any) -> None:
    environment, _, familiar = made
    rule = environment_of("autoscaling").rules["hpa-cpu"].make({})
    assert _flagged(environment, familiar, acting=acting_of(environment, rule)) < 0.002


@pytest.mark.parametrize(("other", "times"), [({}, 10.0), ({}, 0.1), ({"slo_ms": 500.0}, 1.0), ({"cpu_ms": 2.0}, 1.0)])
def test_another_load_objective_or_server_is_flagged(made: Any, other: dict[str, float], times: float) -> None:
    _, _, familiar = made
    assert _flagged(_twin(**other), familiar, times=times) > 0.5
