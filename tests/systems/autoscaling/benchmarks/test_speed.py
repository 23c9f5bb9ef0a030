from itertools import pairwise

import pytest
import torch

from systems.autoscaling.benchmarks.speed import SIZES, WAYS, conditions_line, draw_speed, speed_table
from systems.autoscaling.benchmarks.speed_child import measure
from systems.autoscaling.simulator.simulator import Autoscaling

RESULTS = {
    "machine": {"cpu_model": "a core", "date": "2026-11-22T00:00:00+00:00"},
    "entries": [
        {"way": "eager", "device": "cpu", "runs": 3, "seconds": 0.5, "rows": [{"applications": 8192, "median": 7.5e6},
                                                            {"applications": 1, "median": 2000.0}]},
        {"way": "compiled", "device": "cpu", "runs": 3, "seconds": 0.5, "load_average": 9.1,
         "rows": [{"applications": 1, "median": 9000.0}]},
        {"way": "stable_baselines_wrapper", "runs": 3, "seconds": 0.5, "missing": "no module"}]}


@pytest.mark.parametrize("way", ["eager", "gymnasium_vector"])
def test_each_size_is_timed_and_many_at_once_are_faster(way):
    rows = measure("cpu", way, 0.01, 3, [1, 256])
    assert [row["applications"] for row in rows] == [1, 256]
    assert all(len(row["steps_per_s"]) == 3 and min(row["steps_per_s"]) > 0 for row in rows)
    assert rows[1]["median"] > 10 * rows[0]["median"]


def test_table_says_millions_a_way_and_a_size_and_what_is_missing():
    rows = [line.split(" | ") for line in speed_table(RESULTS).split("\n")]
    assert rows[2][0] == "| eager tensors" and rows[0][1:] == ["1", "8,192 |"] and rows[2][2] == "7.50 |"
    assert rows[2][1] == "0.00200" and rows[4][1] == ""
    line = conditions_line(RESULTS).replace("\n", " ")
    assert "not measured (no module)" in line and "goal: 5.00 million at 8,192" in line
    assert "beside other work (load average up to 9)" in line


def test_plot_is_drawn_without_ways_that_are_missing(tmp_path):
    draw_speed(RESULTS, tmp_path / "speed.svg")
    assert (tmp_path / "speed.svg").read_text().startswith("<?xml")


def test_sizes_rise_and_hold_the_goals():
    assert all(one < other for one, other in pairwise(SIZES)) and {1, 8192, 32768} <= set(SIZES)
    assert all(set(way.sizes) <= set(SIZES) for way in WAYS.values())


# torch 2.13's compiler imports what it has itself deprecated: https://github.com/pytorch/pytorch
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_compiled_steps_are_those_of_eager_tensors():
    environment = Autoscaling()
    compiled = torch.compile(environment.step)
    one = other = environment.reset(environment.draw("train", 50, 30, seed=1))
    with torch.no_grad():
        for number in range(25):
            targets = torch.stack([one.limit, one.memory, one.replicas], dim=1) * (0.8 + 0.4 * ((number * 7) % 5) / 4)
            (one, outcome), (other, compiled_outcome) = environment.step(one, targets), compiled(other, targets)
            # sums in another order: float32 rounding, which a threshold may enlarge in few applications
            assert torch.isclose(outcome.cost, compiled_outcome.cost, rtol=1e-3).float().mean() > 0.95
            assert torch.isclose(outcome.reward, compiled_outcome.reward, rtol=1e-3).float().mean() > 0.95
