"""Most up and most down in every place that holds them: at rates of which no two are equal and none is 1.

A rate of 1 up is a doubling, and one rate for all controls is any of them: who takes a constant, or another control's,
is not seen where they coincide.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from models.control.contract.signals import Control
from models.control.policy.policy import Policy, PolicyShape
from models.control.simulation.gymnasium_wrappers import ApplicationsEnv, Interface
from models.tasks.control.product import fallback_and_ranges
from models.tasks.control.scoring import Score
from models.tasks.control.tuned_rule import TunedRule
from models.training.seeds import seeded
from systems.autoscaling.interface import CONTROLS
from systems.autoscaling.simulator.simulator import _bounded
from tests.models.control.leaky_queue import LeakyQueue

RATES = ((0.15, 0.7), (0.4, 1.8))
RULE = TunedRule("rule", {}, Score(0.0, 0.0, 0.0, 0.0), 1)


class Rates(LeakyQueue):
    controls = tuple(replace(control, most_down=down, most_up=up, whole=False)
                     for control, (down, up) in zip(LeakyQueue.controls, RATES, strict=True))


FACTORS = {-1: [1 - down for down, _ in RATES], 1: [1 + up for _, up in RATES]}


@pytest.mark.parametrize("side", [-1, 1])
def test_a_policy_goes_no_further_than_each_control_may(side: int) -> None:
    pond = Rates()
    policy = Policy(PolicyShape(pond.signals, pond.controls, pond.features, (4,)), seeded(0))
    observation = pond.observe(pond.reset(pond.draw("train", 5, 5, 1)))
    far = policy.targets(observation, policy.scaling(observation), torch.full((5, 2), 10.0 * side))
    torch.testing.assert_close(far / observation[:, :2], torch.tensor(FACTORS[side]).expand(5, 2))


@pytest.mark.parametrize("side", [-1, 1])
def test_an_action_of_the_wrapped_environment_is_each_control_s_largest_change(side: int) -> None:
    seen: list[torch.Tensor] = []

    class Told(Rates):
        def step(self, state, targets):  # type: ignore[no-untyped-def]
            seen.append(targets / torch.stack([state.rate, state.room], dim=1))
            return super().step(state, targets)

    env = ApplicationsEnv(Told(), 3, Interface(actions="changes"))
    env.reset(seed=0)
    env.step(np.full((3, 2), side, dtype=np.float32))
    torch.testing.assert_close(seen[0], torch.tensor(FACTORS[side]).expand(3, 2))


@pytest.mark.parametrize("control", [
    Control("a", "a", "1", 0.1, 1e3, 0.15, 0.7), Control("b", "b", "1", 1.0, 1e3, 0.4, 1.8, whole=True)],
    ids=["any", "whole"])
@pytest.mark.parametrize("present", [1.0, 2.0, 3.0, 40.0])
def test_the_simulator_bounds_a_target_by_the_control_s_own_rates(control: Control, present: float) -> None:
    found = _bounded(torch.tensor([0.0, 1e9]), torch.full((2,), present), control).tolist()
    least, most = present * (1 - control.most_down), present * (1 + control.most_up)
    if control.whole:
        least, most = min(least, present - 1), max(most, present + 1)
    assert found == pytest.approx([max(least, control.low), most])


def test_a_contract_says_each_control_s_own_rates_and_limits() -> None:
    controls = tuple(replace(control, most_down=0.1 + 0.2 * k, most_up=0.3 + 0.6 * k)
                     for k, control in enumerate(CONTROLS))
    said = fallback_and_ranges(RULE, SimpleNamespace(controls=controls))["safe_ranges"]  # type: ignore[arg-type]
    assert said == {one.name: {"minimum": one.low, "maximum": one.high, "most_down": one.most_down,
                               "most_up": one.most_up} for one in controls}
    less = [replace(one, safe_side="less") for one in controls]
    said = fallback_and_ranges(RULE, SimpleNamespace(controls=less))["safe_ranges"]  # type: ignore[arg-type]
    assert {one["safe_side"] for one in said.values()} == {"less"}
