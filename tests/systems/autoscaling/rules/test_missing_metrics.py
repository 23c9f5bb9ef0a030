"""Metrics that are away for long: no rule takes what it does not see for nothing to do."""

import numpy as np
import pytest

from systems.autoscaling.rules.rules import make
from tests.systems.autoscaling.rules.test_rules import steady

IDLE, LEAST = 1.0, 3.0
CHOSEN = {"replicas_threshold_rps": 10.0, "replicas_activation_rps": 5.0, "replicas_cooldown_s": 60.0,
          "replicas_polling_s": 30.0, "replicas_min_replicas": LEAST, "replicas_idle_replicas": IDLE,
          "replicas_down_window_s": 0.0}


def trail(rates: list[float], step_s: float) -> list[float]:
    """Replicas that are asked for, a step each."""
    rule = make("keda-rate", CHOSEN)
    rule.start(1)
    return [float(rule.act(steady(rate_rps=rate), step_s * step)["target_replicas"][0])
            for step, rate in enumerate(rates)]


@pytest.mark.parametrize("step_s", [7.5, 15.0, 30.0, 45.0])
def test_a_rate_that_is_away_for_longer_than_the_cool_down_is_no_idleness(step_s: float) -> None:
    blind = round(600.0 / step_s)
    assert IDLE not in trail([100.0] + [np.nan] * blind, step_s)
    assert IDLE not in trail([np.nan] * blind, step_s)
    assert trail([100.0] + [1.0] * blind, step_s)[-1] == IDLE


@pytest.mark.parametrize("step_s", [15.0, 30.0])
def test_the_cool_down_begins_again_when_the_rate_is_back(step_s: float) -> None:
    """One look at NaN within the cool-down is activity."""
    quiet = round(60.0 / step_s)
    rates = [100.0] + [1.0] * (quiet - 1) + [np.nan] * 2 + [1.0] * (2 * quiet)
    found = trail(rates, step_s)
    assert IDLE not in found[:quiet + 2 + quiet - 2] and found[-1] == IDLE
