"""What rules do, one decision after the other."""

from collections.abc import Mapping

import numpy as np
import pytest

from systems.microservices.rules import RULES

STANDING = {"cores": 2.0, "usage": 0.5, "demand_cores": 1.0, "mean_demand_cores": 1.0, "latency_ms": 50.0,
            "most_latency_ms": 100.0, "importance": 0.5, "own_latency_ms": 10.0, "usual_latency_ms": 10.0,
            "fair_cores": 2.0, "allotment_cores": 64.0}


class Ruled:
    """One service whose limit a rule sets."""

    def __init__(self, name: str, settings: Mapping[str, float]) -> None:
        self.rule, self.cores, self.second = RULES[name].make(settings), STANDING["cores"], 0.0
        self.rule.start(1)

    def after(self, seconds: int = 1, **changed: float) -> float:
        for _ in range(seconds):
            seen = {**STANDING, **changed, "cores": self.cores}
            self.cores = float(self.rule.act({name: np.array([value]) for name, value in seen.items()}, self.second)[
                "target_cores"][0])
            self.second += 1.0
        return self.cores


def test_kubernetes_goes_up_at_its_next_decision_and_down_after_its_window_to_the_highest_of_it() -> None:
    one = Ruled("kubernetes", {"target": 0.5, "window_s": 45.0})
    assert one.after(14, usage=1.0) == 2.0 and one.after(1, usage=1.0) == 4.0
    assert one.after(15, usage=0.52) == 4.0, "within a tenth it stays"
    assert one.after(15, usage=0.2) == 4.0 and one.after(15, usage=0.3) == 4.0
    assert one.after(15, usage=0.1) == pytest.approx(4.0 * 0.3 / 0.5)


def test_a_wish_to_stay_counts_for_kubernetes_window() -> None:
    one = Ruled("kubernetes", {"target": 0.5, "window_s": 30.0})
    assert one.after(15, usage=0.2) == one.after(15, usage=0.5) == one.after(15, usage=0.2) == 2.0
    assert one.after(15, usage=0.2) == pytest.approx(0.8)


def test_kubernetes_window_slides() -> None:
    one = Ruled("kubernetes", {"target": 0.5, "window_s": 30.0})
    assert one.after(15, usage=0.4) == 2.0 and one.after(15, usage=0.2) == pytest.approx(1.6)
    assert one.after(15, usage=0.25) == pytest.approx(0.8), "at its next decision again"


def test_aimd_adds_while_the_objective_is_missed_and_takes_a_share_off_an_idle_service() -> None:
    one = Ruled("aimd", {"step": 0.1, "down_step": 0.2, "idle_usage": 0.6})
    assert one.after(3, latency_ms=120.0) == pytest.approx(2.6)
    assert one.after(2) == pytest.approx(2.6 * 0.64)


def test_on_the_critical_path_a_missed_objective_raises_the_important_ones_alone() -> None:
    found = {}
    for importance in (0.0, 0.3, 0.9):
        one = Ruled("critical-path", {"sharp": 1.0})
        found[importance] = (one.after(1), one.after(1, latency_ms=200.0, importance=importance))
    assert found[0.0][1] == found[0.0][0] and found[0.0][1] < found[0.3][1] < found[0.9][1]


@pytest.mark.parametrize("name", list(RULES))
def test_none_exceeds_its_allotment(name: str) -> None:
    assert Ruled(name, {}).after(20, usage=1.0, latency_ms=1000.0, demand_cores=50.0, allotment_cores=1.5) == 1.5
