"""Who knows the coming seconds costs less than a level that stays, at as few violations; the table tells what came."""

import pytest
import torch

from systems.cpu_frequency.benchmarks import foresight
from systems.cpu_frequency.simulator import CpuFrequency


@pytest.fixture(scope="module")
def fixed() -> dict[float, tuple[float, float]]:
    """Level -> cost and violating share of 16 services on which it stays; as `foreseen` counts them."""
    system, found = CpuFrequency(), {}
    for level in foresight.LEVELS:
        state, costs, violated = system.reset(system.draw("held_out", 16, 12, 0)), [], []
        for step in range(12):
            state, outcome = system.step(state, torch.full((16, 1), level))
            if step >= 4:
                costs.append(outcome.cost.mean())
                violated.append(outcome.violated.mean())
        found[level] = float(torch.stack(costs).mean()), float(torch.stack(violated).mean())
    return found


def foreseen(price: float) -> tuple[float, float]:
    system = CpuFrequency()
    return foresight.foreseen(system, system.draw("held_out", 16, 12, 0), 12, price, 4)


def test_without_a_price_no_level_that_stays_costs_less(fixed: dict[float, tuple[float, float]]) -> None:
    assert foreseen(0.0)[0] <= min(cost for cost, _ in fixed.values()) + 1e-5


def test_where_violations_have_a_price_there_are_as_few_as_of_the_best_level_at_less_cost(
    fixed: dict[float, tuple[float, float]]
) -> None:
    cost, violated = foreseen(3.0)
    fewest = min(share for _, share in fixed.values())
    assert violated <= fewest
    assert cost < min(one for one, share in fixed.values() if share == fewest)
    assert foreseen(0.0)[1] > violated


def test_the_table_counts_from_the_best_rule() -> None:
    found = {"rule": {"name": "ondemand", "cost": 0.4, "violating_share": 0.04}, "machine": {"date": "2026-11-30"},
             "entries": [{"price": 0.2, "cost": 0.39, "violating_share": 0.05},
                         {"price": 0.0, "cost": 0.36, "violating_share": 0.5}]}
    assert foresight.foresight_table(found).splitlines()[2:] == [
        "| none: the clock that costs least | 0.360 | 50.0 % | 10.0 % |", "| 0.2 | 0.390 | 5.0 % | 2.5 % |",
        "| `ondemand`, which knows nothing of it | 0.400 | 4.0 % |  |"]
