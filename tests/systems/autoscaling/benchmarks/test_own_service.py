"""The table of a service that no recording knows."""

import json
from typing import Any

import pytest

from systems.autoscaling.benchmarks.own_service import OUTPUT, own_service_table


def results() -> dict[str, Any]:
    return {"machine": {"cores": 2, "cpu_model": "a CPU", "date": "2026-11-24"}, "load_average": 0.4,
            "recorded_minutes": 16.0, "seconds": {"init": 6.0, "run": 260.0, "shadow": 1020.0, "report": 7.0},
            "settings": {"slo_ms": 100.0, "cpu_ms": 9.1}, "verdict": "PROVED",
            "gates": {"specification": True, "reward": False},
            "metrics": {"cost_saved": 0.19, "violating_share": 0.0032, "reward_gain": -0.006},
            "shadow": {"steps": 68, "decided": {"not_by_policy": 0.25}, "verdict": "In 10 minutes: nothing.",
                       "doubts": ["The twin is far off."]}}


def test_each_step_has_its_seconds_and_what_came_out() -> None:
    shown = own_service_table(results())
    assert "PROVED, 1 of 2 gates; cost saved against the best rule +19.0 %, violating 0.32 % of the steps" in shown
    assert "68 steps, the policy decided in 75 %" in shown and "In 10 minutes: nothing. (doubts: 1)" in shown
    assert "slo_ms 100, cpu_ms 9.1" in shown and "recorded for 16 minutes" in shown
    refused = own_service_table({**results(), "shadow": None})
    assert "1 of 2 gates" in refused and "shadow" not in refused


@pytest.mark.skipif(not OUTPUT.exists(), reason="not measured yet")
def test_what_was_measured_can_be_shown() -> None:
    assert own_service_table(json.loads(OUTPUT.read_text())).count("| `assay ") == 2
