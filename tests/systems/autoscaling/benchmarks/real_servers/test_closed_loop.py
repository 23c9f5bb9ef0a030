"""The closed loop's loads, forecast, tasks and tables; the runs themselves are the benchmark."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_store.errors import InputError
from models.tasks.task import parse_task
from recording.live.service import TIMEOUT_S
from systems.autoscaling.benchmarks.real_servers import loads, tables
from systems.autoscaling.benchmarks.real_servers.forecast import forecast_p99_ms
from systems.autoscaling.benchmarks.real_servers.plots import draw_compared
from systems.autoscaling.benchmarks.real_servers.policies import task_of
from systems.autoscaling.benchmarks.real_servers.rules import FAMILIES, best, made
from systems.autoscaling.benchmarks.real_servers.settings import COUNTED_S, FIRST, SLO_MS, STEP_S, WARM_UP_S

INTERVALS = int((WARM_UP_S + COUNTED_S) // STEP_S)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> loads.Functions:
    """Of a trace whose every function has minutes of its own, so that a sum tells which are in it."""
    random = np.random.default_rng(0)
    counts = 10.0 + 3.0 * np.sin(np.arange(1440) / random.uniform(20, 90, (60, 1))) + random.poisson(2.0, (60, 1440))
    monkeypatch.setattr(loads, "read_invocations", lambda path: counts)
    return loads.Functions(Path("nowhere"))


def test_no_function_is_in_two_loads_and_days_have_mean_one(functions: loads.Functions) -> None:
    days = [functions.day() for _ in range(15)]
    assert np.allclose([day.mean() for day in days], 1.0)
    correlations = np.corrcoef(days)
    assert (correlations[~np.eye(15, dtype=bool)] < 0.999).all()
    with pytest.raises(InputError, match="functions for all loads"):
        functions.day()


def test_training_has_three_days_a_workload(functions: loads.Functions) -> None:
    found = loads.training_load(functions, ("nginx", "redis"))
    assert found.groupby("workload").size().tolist() == [3 * 1440, 3 * 1440]
    assert found.groupby("workload")["rate_rps"].mean().tolist() == pytest.approx([loads.MEAN_RPS] * 2, rel=0.01)


def test_a_played_stretch_has_a_peak_and_lasts_as_long_as_a_run(monkeypatch, functions: loads.Functions) -> None:
    monkeypatch.setattr(loads, "LEAST_PEAK", 1.0)
    load = loads.played_load(functions, 3)
    assert sum(load.seconds) == WARM_UP_S + COUNTED_S
    assert loads.MEAN_RPS <= max(load.rates) <= loads.MOST_PEAK * loads.MEAN_RPS
    monkeypatch.setattr(loads, "LEAST_PEAK", 5.0)
    monkeypatch.setattr(loads, "MOST_PEAK", 9.0)
    with pytest.raises(InputError, match="functions for all loads"):
        loads.played_load(functions, 3)


@pytest.mark.parametrize("kind", ["proved", "weakened", "other"])
def test_tasks_are_valid_and_demand_what_they_say(kind: str) -> None:
    task = parse_task(task_of(kind), "test")
    demanded = {name for rule in task.specification["properties"] for name in rule}
    assert demanded == ({"range"} if kind == "weakened" else {"monotone", "range", "order"})
    assert (task.by_construction is None) == (kind == "weakened")


def test_the_forecast_rises_where_the_quota_is_short() -> None:
    rate = np.full((6, 3), 150.0)
    quota = np.tile([0.6, 0.16, 0.1], (6, 1))
    found = forecast_p99_ms("nginx", rate, quota, 64.0)
    assert found.shape == (6, 3)
    assert (found[:, 0] < 10).all(), found
    assert (found[1:, 1] > found[1:, 0]).all(), found
    assert found[-1, 2] == 1000 * TIMEOUT_S, "a backlog grows until clients give up"


def test_the_best_rule_is_the_cheapest_at_the_objective_and_no_static_one() -> None:
    found: dict[str, Any] = {
        "static": {"cost": 1.0, "violating_share": 0.0, "settings": {}},
        "vertical-cpu": {"cost": 3.0, "violating_share": 0.02, "settings": {}},
        "aimd-p99": {"cost": 2.0, "violating_share": 0.021, "settings": {}},
        "vertical-cpu-p99": {"cost": 3.5, "violating_share": 0.0, "settings": {}}}
    assert best(found, 0.02) == "vertical-cpu"
    assert made(found, "vertical-cpu").name == "vertical-cpu"
    assert set(found) <= set(FAMILIES)


def results() -> dict[str, Any]:
    """Two runs of two arms: the policy has one interval above the objective in its second run."""
    def arm(name: str, run: int, quota: float) -> dict[str, Any]:
        p99 = [10.0] * INTERVALS
        if name == "policy" and run:
            p99[-1] = 2 * SLO_MS
        cut = {"control": "target_cpu_limit_cores", "reason": "rate", "wanted": 0.2, "allowed": 0.5}
        steps = [{"actor": "policy" if name == "policy" else "fallback", "failure": "",
                  "reason": "" if name == "policy" else "the rule acts alone",
                  "shield": [cut] if number == INTERVALS - 2 else []} for number in range(INTERVALS - 1)]
        return {"arm": name, "rate": [100.0] * INTERVALS, "p99_ms": p99, "failed": [0.0] * INTERVALS,
                "quota": [quota] * INTERVALS, "used": [0.1] * INTERVALS, "forecast_p99_ms": [5.0] * INTERVALS,
                "steps": steps, "lateness_ms": 0.2, "violating_share": float(np.mean(np.array(p99[FIRST:]) > SLO_MS)),
                "violated_requests": 0.0, "cores": quota, "used_cores": 0.1, "reward": 1.2, "failed_share": 0.0}

    return {"machine": {"cpu_model": "a", "cores": 2, "kernel": "6", "date": "2026-11-23"}, "entries": [
        {"kind": "compared", "server": "nginx", "run": run, "load_average": 1.0,
         "arms": [arm("policy", run, 0.3), arm("static", run, 0.6)]} for run in range(2)]}


def test_tables_say_spread_shield_and_pairs(tmp_path: Path) -> None:
    found = results()
    static, policy = tables.compared_table(found).splitlines()[2:]
    share = 100 / (INTERVALS - FIRST)
    assert static.startswith("| nginx | static | 2 | 0 (0 to 0) |")
    assert policy.startswith(f"| nginx | policy | 2 | {share / 2:.3g} (0 to {share:.3g}) |")
    assert policy.rstrip(" |").endswith(f"2 of {2 * (INTERVALS - FIRST)} | 0 of {2 * (INTERVALS - FIRST)}")
    assert "quota saved +50.0 % (+50.0, +50.0)" in tables.paired_line(found)
    assert "| nginx | policy | rate | 2 | 0 | 2 | 0.300 |" in tables.shield_table(found)
    assert "| nginx | policy | 0.693 | -0.693 |" in tables.forecast_table(found)
    assert "load average before a run 1.0 to 1.0" in tables.conditions_line(found).replace("\n", " ")
    draw_compared(found, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_what_was_not_measured_is_said() -> None:
    for render in (tables.compared_table, tables.suspect_table, tables.forecast_table, tables.paired_line):
        assert render({"entries": []}) == tables.NOT_MEASURED
