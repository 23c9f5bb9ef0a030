"""Cases in which nothing was trained: what they are, and how costs are read off fronts and told."""

import numpy as np
import pytest

from systems.autoscaling.benchmarks.cases import AS_TRAINED, cases, cases_table, costs, ramps
from systems.autoscaling.benchmarks.fronts import Front
from systems.autoscaling.simulator.applications import generate
from systems.autoscaling.simulator.simulator import Autoscaling


def test_a_ramp_is_ten_times_the_load_in_five_minutes():
    shape = ramps(70)
    assert shape.shape == (70,) and shape.max() / shape.min() == pytest.approx(10.0)
    first, last = (int(np.flatnonzero(at)[edge]) for at, edge in ((shape > shape.min(), 0), (shape == shape.max(), 0)))
    assert last - (first - 1) == 5
    assert 0.8 < shape.mean() < 1.6


def test_half_the_objective_is_the_same_load_and_the_others_are_other_loads():
    own = Autoscaling(generate(240))
    others = cases(own, None)
    drawn = {name: one.draw("held_out", 8, 100, seed=3) for name, one in {"own": own, **others}.items()}
    assert drawn["half the objective"].rate.equal(drawn["own"].rate)
    assert drawn["half the objective"].applications.slo_s.equal(0.5 * drawn["own"].applications.slo_s)
    for name, times in (("flash crowds", 4.0), ("ramps", 8.0)):
        days = others[name].draw("held_out", 8, 281, seed=3)  # 70 minutes: each has a whole one
        assert days.applications.slo_s.equal(drawn["own"].applications.slo_s)
        assert (days.rate.max(dim=0).values / days.rate.min(dim=0).values > times).all()


def test_costs_are_read_at_shares_of_steps_and_of_requests():
    figures = {"cost": np.array([[4.0], [2.0], [1.0]]), "violated": np.array([[0.005], [0.01], [0.02]]),
               "violated_requests": np.array([[0.01], [0.02], [0.04]])}
    found = costs(Front(("a", "b", "c"), figures))
    assert found["steps"] == pytest.approx({"0.005": 4.0, "0.01": 2.0, "0.02": 1.0})
    assert np.isnan(found["requests"]["0.005"])
    assert (found["requests"]["0.01"], found["requests"]["0.02"]) == pytest.approx((4.0, 2.0))


def test_the_policy_is_told_against_the_rule_that_is_cheapest_there():
    def told(steps, requests):
        return {"steps": dict(zip(("0.005", "0.01", "0.02"), steps, strict=True)),
                "requests": dict(zip(("0.005", "0.01", "0.02"), requests, strict=True))}

    nothing = (None, None, None)
    entry = {"load": "made", "cases": {AS_TRAINED: {
        "rules": {"a": told((4.0, 3.0, 2.0), nothing), "b": told((None, 2.5, 2.2), nothing)},
        "policies": [told((5.0, 2.0, 1.5), nothing), told((None, 2.0, 1.5), nothing)]}}}
    steps, requests = cases_table({"entries": [entry]}).splitlines()[2:]
    assert "5.00 for 4.00 of a: -25 %, 1 of 2 seeds" in steps
    assert "2.00 for 2.50 of b: +20 %" in steps
    assert "1.50 for 2.00 of a: +25 %" in steps
    assert requests.count("outside of the fronts") == 3
