import torch

from models.control.training.methods import OFFLINE
from models.control.training.training_run import new_policy, plain_shape
from systems.autoscaling.benchmarks.bootstrapping import (
    STARTS,
    OneApplication,
    bootstrapping_data,
    fallback_figures,
    measure,
)
from systems.autoscaling.benchmarks.early_tables import early_table
from systems.autoscaling.simulator.simulator import Autoscaling


def figures(violated: float, use: float) -> dict[str, list[float]]:
    return {"reward": [100.0] * 8, "violated": [violated] * 8, "cpu_utilization": [use] * 8,
            "memory_utilization": [0.5] * 8}


def test_the_table_is_relative_to_the_fallback():
    found = {"scratch": figures(0.5, 0.3), "bcq": figures(0.04, 0.4), "hpa": figures(0.02, 0.4)}
    content = {"fallback": "hpa", "asked": {"episodes": 8}, "entries": [
        {"application": 1, "start": name, "figures": of_start} for name, of_start in found.items()]}
    rows = early_table(content).split("\n")
    assert rows[3].startswith("| scratch | 1 | -25 % | -25 % | -25 % | -25 % | +0 %") and "| 25.0 x | 50 % |" in rows[3]
    assert "| 2.0 x | 4 % |" in rows[4] and rows[5].startswith("| fallback (hpa)")


def test_every_offline_method_is_a_start():
    assert {start.offline for start in STARTS.values()} == {"", *OFFLINE}


def test_an_agent_and_the_fallback_see_the_same_episodes_of_one_application():
    environment = Autoscaling(steps=6)
    one = OneApplication(environment, 850)
    episodes = one.draw("train", 1, 6, 3)
    assert episodes.numbers.tolist() == [850]
    assert torch.equal(episodes.rate, environment.draw("held_out", 1, 6, 3, applications=[850]).rate)
    assert len(bootstrapping_data(one)) == 10 * 5
    found = measure(environment, 850, STARTS["generic"], new_policy(environment, plain_shape(environment, (8,)), 0), 2)
    beside = fallback_figures(environment, 850, 2)
    assert len(found["reward"]) == len(beside["violated"]) == 2 and all(0 <= one <= 1 for one in found["violated"])
