"""A rule tuned for each application: a search for each, at one price of violations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.control.simulation.rollout import roll_out
from models.control.training.rule_for_each import choose_each, for_each_application
from models.control.training.rule_tuning import Tuner, side_by_side
from systems.autoscaling.rules.rules import RULES, make
from systems.autoscaling.simulator.simulator import Autoscaling

RULE = "hpa-cpu"
ENVIRONMENT = Autoscaling()
STEPS, COUNT, TARGET = 40, 16, 0.1


@pytest.fixture(scope="module")
def episodes():
    return ENVIRONMENT.draw("train", COUNT, STEPS + 1, seed=0)


@pytest.fixture(scope="module")
def front(episodes):
    tuner = Tuner(ENVIRONMENT, RULES[RULE], episodes, STEPS, seed=1)
    tuner.search(24, TARGET)
    return tuner


def judged(found, episodes):
    return roll_out(ENVIRONMENT, make(RULE, side_by_side(found, 1)), episodes, STEPS)


def test_each_application_has_settings_that_no_choice_had_and_they_are_cheaper(episodes, front):
    choices = [trial.settings for trial in front.front()]
    chosen, searched = (for_each_application(ENVIRONMENT, RULES[RULE], choices, episodes, STEPS, TARGET, trials=trials)
                        for trials in (0, 24))
    before, after = (judged(found, episodes) for found in (chosen, searched))
    assert max(before.violated.mean(), after.violated.mean()) <= TARGET
    assert after.cost.mean() < 0.97 * before.cost.mean() < front.best(TARGET).cost
    assert all(own in choices for own in chosen)
    new = [own for own in searched if own not in choices]
    assert len(new) > COUNT / 2
    assert len({tuple(own.values()) for own in new}) == len(new)


def test_several_episodes_of_an_application_count_together(episodes, front):
    choices = [trial.settings for trial in front.front()]
    numbers = episodes.numbers.tolist()
    both = ENVIRONMENT.draw("train", 2 * COUNT, STEPS + 1, seed=9, applications=numbers * 2)
    trials = Tuner(ENVIRONMENT, RULES[RULE], both, STEPS).evaluate(choices)
    cost, violated = (np.stack([getattr(trial.rollout, name).reshape(2, COUNT).mean(axis=0) for trial in trials])
                      for name in ("cost", "violated"))
    expected = [choices[row] for row in choose_each(cost, violated, TARGET)]
    assert for_each_application(ENVIRONMENT, RULES[RULE], choices, both, STEPS, TARGET, repeats=2, trials=0) == expected


@given(st.integers(0, 2 ** 32 - 1), st.floats(0.05, 0.5))
def test_choosing_for_each_application_keeps_the_target_and_beats_one_choice_for_all(seed, target):
    rng = np.random.default_rng(seed)
    cost, violated = rng.uniform(1, 5, (6, 20)), rng.uniform(0, 1, (6, 20)) ** 3
    violated[0] = 0.0
    chosen = choose_each(cost, violated, target)
    columns = np.arange(20)
    assert violated[chosen, columns].mean() <= target
    allowed = cost.mean(axis=1)[violated.mean(axis=1) <= target]
    assert cost[chosen, columns].mean() <= allowed.min() + 0.5
    assert choose_each(cost, np.zeros_like(violated), target).tolist() == cost.argmin(axis=0).tolist()
