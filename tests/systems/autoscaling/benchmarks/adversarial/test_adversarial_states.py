"""Worst states, their occurrence and their pictures, of small policies that are not trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from feature_store.errors import InputError
from models.control.policy.policy import Gates, Policy
from models.control.training.rollouts import random_walk
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.task import load_task
from models.verification.language.broken import missed_by
from systems.autoscaling.benchmarks.adversarial.demands import DEMANDS, noticed, rows_of, set_targets
from systems.autoscaling.benchmarks.adversarial.plot import caption, draw_states, worst_row
from systems.autoscaling.benchmarks.adversarial.states import measure
from systems.autoscaling.benchmarks.adversarial.tables import conditions_line, states_table
from systems.autoscaling.benchmarks.adversarial.worst import NEAR, ExportedPolicy, around, swept, worst
from systems.autoscaling.simulator.simulator import Autoscaling

TASK = load_task("autoscaling")
ENVIRONMENT = Autoscaling(steps=12)
SHAPE = replace(policy_shape(TASK, ENVIRONMENT), hidden=(8,))
PROPERTIES = TASK.specification["properties"]
ROWS = rows_of(TASK, SHAPE, PROPERTIES)
SEEN = random_walk(ENVIRONMENT, Policy(SHAPE).current, 6, 0, 64).reshape(-1, len(SHAPE.signals)).double().numpy()


def row_of(demand, control="target_replicas"):
    (row,) = [row for row in ROWS if (row.demand, row.control.name) == (demand, control)]
    return row


def policies():
    """Two with random weights that are not small: one as the task file says, one without gates and signs."""
    made = {}
    for form in ("plain", "proved"):
        shape = SHAPE if form == "proved" else replace(SHAPE, gates=Gates())
        policy = Policy(shape, torch.Generator().manual_seed(3))
        policy.normalise(torch.from_numpy(SEEN).float())
        with torch.no_grad():
            policy.weights[-1].mul_(30.0)
        if form == "proved":
            demands_of(TASK).project(policy)
        made[form] = policy
    return made


@pytest.fixture(scope="module")
def results():
    numbers = ENVIRONMENT.draw("held_out", 24, 2, 0).numbers.tolist()
    episodes = ENVIRONMENT.draw("held_out", 24, 13, 5, applications=numbers)
    rows = [row for row in ROWS if row.control.whole]
    found = measure(policies(), rows, PROPERTIES, ENVIRONMENT, episodes, 12, 2)
    return {"entries": [{"seed": 0, "rounds": 0, **found}]}


def test_every_demand_of_the_task_file_has_a_row_and_a_strange_one_is_refused():
    assert {row.demand for row in ROWS} == set(DEMANDS)
    assert sum(len(row.written) for row in ROWS) == sum("range" not in one for one in PROPERTIES)
    strange = {"monotone": {"features": ["io_utilization"], "direction": "increasing", "output": "target_replicas"}}
    with pytest.raises(InputError, match="expected the demands of an autoscaler"):
        rows_of(TASK, SHAPE, [strange])


def test_a_demand_is_missed_by_what_is_lacking_where_the_conditions_hold():
    row, state = row_of("missed"), np.repeat(SEEN[:1], 3, axis=0)
    state[:, SHAPE.column("replicas")] = 8.0
    state[:, SHAPE.column("slo_ms")], state[:, SHAPE.column("p99_ms")] = 100.0, [99.0, 100.0, 300.0]
    targets = np.array([[1.0, 100.0, 6.2]] * 3)
    found = [missed_by(rule, state, targets) for rule in row.rules]
    applies, amount = (np.array(one) for one in zip(*found, strict=True))
    assert applies.any(axis=0).tolist() == [False, True, True] and amount[0] == pytest.approx(8.0 - 6.2 - 0.001)
    # six replicas and a bit are set as seven: one is seen to be taken away
    assert set_targets(SHAPE, targets)[0].tolist() == [1.0, 100.0, 7.0]
    assert noticed(row, SHAPE, state, np.array([0.4, 1.0, 2.0])).tolist() == [False, True, True]


def test_boxes_hold_their_state_and_only_measurements_vary():
    lower, upper = around(SHAPE, SEEN)
    assert ((lower <= SEEN) & (upper >= SEEN)).all()
    for name in ("replicas", "raised_s_ago", "slo_ms"):
        assert (lower[:, SHAPE.column(name)] == upper[:, SHAPE.column(name)]).all()
    rate = SHAPE.column("rate_5min_rps")
    assert np.allclose(upper[:, rate] / SEEN[:, rate], 1 + NEAR)
    low, high = swept(SHAPE, SHAPE.column("p99_ms"), SEEN)
    assert np.allclose(high[:, SHAPE.column("p99_ms")], 4 * low[:, SHAPE.column("p99_ms")])


def test_the_worst_is_no_better_than_any_state_tried_and_replays(tmp_path):
    policy, row = ExportedPolicy.of(policies()["plain"], tmp_path / "plain.onnx"), row_of("hold")
    assert worst(policy, row, tmp_path, SEEN[:0], True) is None  # no state, nothing near
    found = worst(policy, row, tmp_path, SEEN, True)
    targets = policy.targets(SEEN)
    tried = np.max([np.where(*missed_by(rule, SEEN, targets), -np.inf) for rule in row.rules])
    assert found is not None and found.amount >= 0.98 * tried > 0
    again = max(float(amount[0]) for applies, amount in
                (missed_by(rule, found.states, policy.targets(found.states)) for rule in row.rules) if applies[0])
    assert again == pytest.approx(found.amount, abs=1e-4)
    anywhere = worst(policy, row, tmp_path, np.concatenate([SEEN, found.states]), False)
    assert anywhere is not None and anywhere.amount >= 0.98 * found.amount


def test_a_pair_differs_in_its_signal_alone_and_falls(tmp_path):
    policy = ExportedPolicy.of(policies()["plain"], tmp_path / "plain.onnx")
    for demand in ("served", "load"):
        row = row_of(demand)
        found = worst(policy, row, tmp_path, SEEN, True)
        assert found is not None and row.feature is not None
        differs = np.flatnonzero(found.states[0] != found.states[1])
        assert differs.tolist() == [row.feature]
        assert np.sign(found.states[1] - found.states[0])[row.feature] == row.worse  # from better to worse
        before, after = policy.targets(found.states)[:, 2]
        assert before - after == pytest.approx(found.amount) and found.amount > 0


def test_the_proved_policy_keeps_every_demand_where_the_plain_one_breaks_them(results):
    (entry,) = results["entries"]
    assert entry["proved"] == "PROVED"
    refuted = {row["demand"] for row in entry["rows"] if row["plain"] == "REFUTED"}
    assert refuted >= {"missed", "hold", "idle"} and "quarter" not in refuted
    for row in entry["rows"]:
        assert row["shares"]["proved"]["broken"] == 0.0
        if row["demand"] in ("missed", "hold") and row["near"]:
            assert row["near"]["targets"]["plain"][0] < row["near"]["present"] <= row["near"]["targets"]["proved"][0]


def test_a_sweep_holds_the_state_and_its_targets(results):
    row = worst_row(results, "hold")
    assert row is not None
    sweep = row["near"]["sweep"]
    assert sweep["signal"] == "raised_s_ago" and sweep["values"][0] == 15.0 and sweep["values"][-1] >= 120.0
    within = [proved for seconds, proved in zip(sweep["values"], sweep["proved"], strict=True) if seconds <= 60]
    assert min(within) >= row["near"]["present"]


def test_tables_and_pictures_are_made_of_results(results, tmp_path):
    rows = states_table(results).split("\n")
    assert len(rows) == 2 + len(DEMANDS)
    assert "none: proved of it, too" in rows[-1] and " → " in rows[2]
    assert "PROVED of 1 of 1" in conditions_line(results)
    draw_states(results, tmp_path / "one.svg")
    assert (tmp_path / "one.svg").stat().st_size > 50_000


def test_the_caption_tells_the_state_but_for_what_is_swept():
    state = dict(zip([signal.name for signal in SHAPE.signals], SEEN[0].tolist(), strict=True))
    state |= {"replicas": 8.0, "ready_replicas": 6.0, "p99_ms": 12.0, "slo_ms": 15.0, "raised_s_ago": 30.0}
    plain_spaces = caption(state, "raised_s_ago").replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")
    assert "p99 12 of 15 ms, 8 replicas (6 serve)" in plain_spaces and "raised" not in plain_spaces
    assert "objective 15 ms" in caption(state, "p99_ms").replace("\N{NO-BREAK SPACE}", " ")
