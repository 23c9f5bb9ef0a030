"""Figures of the adaptation benchmarks, from results that are made here."""

import numpy as np
import pytest
import torch

from models.control.adaptation.inputs import Forecast, Given, Hidden, Joined, Nothing
from models.control.adaptation.load_forecast import Autoregression
from systems.autoscaling.benchmarks.adaptation import (
    new_application,
    new_application_tables,
    rival_policies,
    rivals,
    serving,
)
from systems.autoscaling.simulator.simulator import Autoscaling


def rival(name, scale, seeds=2, applications=6):
    """One whose cost at 2 % violating steps is `scale`, give or take what differs between applications and seeds."""
    random = np.random.default_rng(1)
    spread = 1.0 + 0.01 * random.standard_normal((seeds, 1, applications))
    cost = scale * np.array([2.0, 1.0, 0.5])[:, None] * spread
    violated = np.array([0.005, 0.02, 0.08])[:, None] * np.ones((seeds, 1, applications))
    figures = {"cost": cost, "violated": violated, "reward": np.ones_like(cost)}
    return {"rival": name, "what": name, "operable": name != "oracle", "cpu_seconds": 1.0,
            "plan": {"seeds": list(range(seeds)), "targets": [0.01, 0.02, 0.04]},
            "figures": {key: [" ".join(map(str, row)) for row in values.reshape(-1, applications)]
                        for key, values in figures.items()}}


def test_savings_are_told_at_equal_violations():
    cheap, dear = (rivals.fronts_of(rival("x", scale)) for scale in (0.8, 1.0))
    mean, low, high = rivals.paired(cheap, dear)
    assert mean == pytest.approx(0.2) and low == pytest.approx(0.2) and high == pytest.approx(0.2)
    assert dear[0].at(0.04) == pytest.approx(dear[0].at(0.02) / 2.0**0.5, rel=1e-3)


def test_the_simplest_is_the_first_that_no_operable_one_beats():
    entries = [rival("linear", 1.0), rival("generic", 0.9), rival("meta", 0.9), rival("oracle", 0.5)]
    line = rivals.simplest_line({"entries": entries})
    assert "**generic**" in line
    table = rivals.rivals_table({"entries": entries})
    names = [row.split(" | ")[0].strip("| ") for row in table.splitlines()[2:]]
    assert names == ["linear", "generic", "meta", "oracle"]
    assert "+44.4 (+44.4 to +44.4)" in table.splitlines()[-1]


def test_a_rival_that_never_reaches_the_share_is_said_to_be_so():
    entry = rival("generic", 1.0)
    entry["figures"]["violated"] = [" ".join(["0.5"] * 6)] * 6
    assert "not reached" in rivals.rivals_table({"entries": [entry]})


def adapted(method, reward):
    values = np.asarray(reward, dtype=float)
    rows = [" ".join(map(str, row.flatten())) for row in values]
    return {"method": method, "what": method, "seeds": values.shape[1], "reward": rows, "violated": rows,
            "pretraining_cpu_s": 2.0, "adaptation_cpu_s": [0.0, 1.0, 2.0, 3.0]}


def test_episodes_are_counted_to_what_the_best_method_reached():
    # (judged, seeds, applications)
    fast = adapted("meta", [[[0.9, 0.9], [0.9, 0.9]], *[[[1.0, 1.0], [1.0, 1.0]]] * 3])
    slow = adapted("transfer", [[[0.5, 0.5]] * 2, [[0.6, 0.6]] * 2, [[0.96, 0.7]] * 2, [[1.0, 0.8]] * 2])
    results = {"entries": [fast, slow], "judged_at": [0, 1, 5, 20]}
    best = new_application_tables.converged(results)
    assert best.tolist() == [1.0, 1.0]
    curves = new_application_tables.curves_of(slow)
    needed, share = new_application_tables.episodes_needed(curves, 0.95 * best, [0, 1, 5, 20])
    assert needed.tolist() == [[5.0, 20.0], [5.0, 20.0]] and share == 0.5
    table = new_application_tables.adaptation_table(results)
    assert "| 10.0 ± 0.0 | 1.0 (1.0 to 1.0) | 100 |" in table and "| 50.0 ± 0.0 | 12.5 " in table


def test_inputs_of_one_episode_serve_two_of_the_same_application():
    told = new_application.doubled(Joined([Given(torch.tensor([[1.0], [0.5]])), Nothing(),
                                           Forecast(Autoscaling(), Autoregression(torch.zeros(2)))]))
    assert told.parts[0].values[:, 0].tolist() == [1.0, 1.0, 0.5, 0.5]


def test_after_a_change_its_payload_or_load_stays():
    environment = Autoscaling()
    applications = serving.chosen_applications(environment, 2)
    drawn = serving.after_change(environment, 3, applications * 2, 2, 2)
    assert drawn.numbers.tolist() == applications * 2 and torch.equal(drawn.rate[:, :16], drawn.rate[:, 16:])
    assert drawn.steps == 61
    share = environment.applications.payload_share[torch.tensor(applications)]
    plain = environment.applications.cpu_s[torch.tensor(applications)]
    grown = (drawn.cpu_s[:, :16] / plain).mean(dim=0)
    assert (share[0:2, 3] > 0.9).all() and (grown[0:2] > 1.7).all()  # files
    assert ((grown[12:] > 0.8) & (grown[12:] < 1.2)).all()  # the load changes, not the payload


def test_serving_is_told_against_the_converged_policy():
    def figures(reward, violated):
        row = " ".join([str(reward)] * 4)
        other = " ".join([str(violated)] * 4)
        return {"reward": [row] * 2, "violated": [other] * 2,
                "cpu_utilization": [row] * 2, "memory_utilization": [row] * 2}

    entry = {"seeds": 2, "scenarios": ["payload_file"], "served": {
        server: figures(*pair) for server, pair in zip(serving.SERVERS, [
            (0.95, 0.1), (0.9, 0.2), (0.8, 0.4), (0.7, 0.4), (0.6, 0.5), (1.0, 0.1)], strict=True)}}
    table = serving.serving_table({"entries": [entry]}).splitlines()
    assert "| AWARE | 0.950 | -5.0 ± 0.0 | 10.0 | 4.00 |" in table[2]
    assert "| payload file | -5.0 | -10.0 | -20.0 | -30.0 | -40.0 |" in serving.scenarios_table({"entries": [entry]})


def test_the_policies_that_others_begin_as_are_kept_and_ignore_what_they_will_be_told(tmp_path):
    environment, file = Autoscaling(), tmp_path / "first.pt"
    plan = rival_policies.Plan(seeds=(0, 1), targets=(0.01, 0.04), iterations=1, applications=2)
    made = rivals.kept_beginning(environment, plan, file)()
    read = rivals.kept_beginning(environment, plan, file)()
    for one, other in zip(made.policy.state_dict().values(), read.policy.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(made.objective.multipliers, read.objective.multipliers)
    observation = environment.observe(environment.reset(environment.draw("train", 3, 10, 0)))
    told = torch.rand(3, len(environment.hidden), generator=torch.Generator().manual_seed(0))
    wide = rival_policies.told_more(made.policy, Hidden(environment))
    torch.testing.assert_close(wide(observation, told), made.policy(observation))
