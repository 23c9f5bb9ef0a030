"""The challenging closed loop: where its objective is looked for, what violates, and how two arms are read."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from systems.autoscaling.benchmarks.real_servers import challenge_tables as tables
from systems.autoscaling.benchmarks.real_servers.challenge import calibrated, figures, next_objectives
from systems.autoscaling.benchmarks.real_servers.settings import FIRST
from systems.autoscaling.benchmarks.real_servers.stage import Played, to_json
from systems.autoscaling.benchmarks.real_servers.tables import NOT_MEASURED

SLO_MS = 20.0
INTERVALS = FIRST + 2 * tables.BLOCK


def arm(name: str, aim: float, violated: int, cores: float) -> dict[str, Any]:
    """An arm that violates in so many of its intervals that count."""
    p99 = [9 * SLO_MS] * FIRST + [2 * SLO_MS] * violated + [SLO_MS] * (INTERVALS - FIRST - violated)
    played = {"rate": [10.0] * FIRST + [100.0] * (INTERVALS - FIRST), "p99_ms": p99, "failed": [0.0] * INTERVALS,
              "quota": [cores / 2] * INTERVALS, "replicas": [2.0] * INTERVALS, "ready": [2.0] * INTERVALS,
              "used": [0.1] * INTERVALS}
    found = figures(SimpleNamespace(**{key: np.array(value) for key, value in played.items()}), SLO_MS)  # type: ignore
    return {"arm": name, "slo_ms": SLO_MS, "aim": aim, "lateness_ms": 0.3, "promoted": True, **played, **found}


def results() -> dict[str, Any]:
    """The policy asks for 20 % less than the rule wherever both violate as much."""
    entries = []
    for number in range(6):
        aim, violated, cores = ((0.01, 0, 1.0), (0.02, 1, 0.8), (0.04, 3, 0.6))[number // 2]
        entries.append({"kind": "compared", "run": number, "load": number % 2, "load_average": 0.1, "arms": [
            arm("rule", aim, violated, cores), arm("policy", aim, violated, 0.8 * cores)]})
    return {"machine": {"cpu_model": "a", "cores": 2, "kernel": "6", "date": "2026-11-23"}, "entries": entries}


def test_an_interval_in_which_no_request_came_through_is_kept_and_violates() -> None:
    """Nobody knows its p99 then, nor what was used where nothing answered."""
    names = ("rate", "p99_ms", "failed", "quota", "replicas", "ready", "used", "memory_mib")
    series = {name: np.ones(INTERVALS) for name in names}
    series["failed"] = np.zeros(INTERVALS)
    series["p99_ms"][-1] = series["used"][-1] = np.nan
    series["failed"][-1] = 1.0
    played = Played("static", (), **series, lateness_ms=0.3)
    found = {**to_json(played), **figures(played, SLO_MS)}
    kept = json.loads(json.dumps(found, allow_nan=False))
    assert kept["p99_ms"][-1] is None and kept["used_cores"] == 1.0
    assert kept["violating_share"] == pytest.approx(1 / (INTERVALS - FIRST))
    assert tables._blocks({**kept, "slo_ms": SLO_MS})["violated"].sum() * tables.BLOCK == pytest.approx(1.0)


def test_what_violates_are_intervals_above_the_objective_or_with_lost_requests() -> None:
    found = arm("rule", 0.02, 4, 0.8)
    assert found["violating_share"] == pytest.approx(4 / (INTERVALS - FIRST)), "the warm-up does not count"
    assert found["violated_requests"] == pytest.approx(4 / (INTERVALS - FIRST))
    assert (found["cores"], found["replicas_mean"]) == (pytest.approx(0.8), 2.0)
    lost = SimpleNamespace(p99_ms=np.full(INTERVALS, 1.0), failed=np.r_[np.zeros(INTERVALS - 1), 0.02],
                           quota=np.ones(INTERVALS), replicas=np.ones(INTERVALS), used=np.ones(INTERVALS),
                           rate=np.r_[np.ones(INTERVALS - 1), 3.0])
    assert figures(lost, SLO_MS)["violating_share"] == pytest.approx(1 / (INTERVALS - FIRST))  # type: ignore[arg-type]
    assert figures(lost, SLO_MS)["violated_requests"] > 2 / (INTERVALS - FIRST)  # type: ignore[arg-type]


@pytest.mark.parametrize(("measured", "low", "high"), [
    ([(20.0, 0.3), (35.0, 0.1), (60.0, 0.06)], 84.0, 110.0), ([(20.0, 0.01), (35.0, 0.005), (60.0, 0.0)], 10.0, 14.5),
    ([(20.0, 0.1), (35.0, 0.06), (60.0, 0.01)], 35.0, 60.0)])
def test_the_objective_is_looked_for_where_the_rule_misses_about_three_per_cent(
        measured: list[tuple[float, float]], low: float, high: float) -> None:
    assert calibrated(measured) is None
    found = next_objectives(measured)
    assert found == sorted(found) and not set(found) & {objective for objective, _ in measured}
    assert low <= found[0] and found[-1] <= high


def test_an_objective_is_calibrated_by_runs_together_not_by_the_luck_of_one() -> None:
    """Single arms around 24 ms miss 0 to 7.5 %: the fit to all of them counts, once there are six."""
    few = [(18.0, 0.25), (23.8, 0.05), (24.0, 0.0), (24.2, 0.015), (24.4, 0.075), (30.0, 0.0)]
    assert calibrated([(18.0, 0.25), (24.0, 0.03), (30.0, 0.0)]) is None, "one arm of one run is no calibration"
    assert calibrated(few) is None, "four arms near it are too few"
    found = calibrated([*few, (24.6, 0.0), (25.0, 0.02)])
    assert found is not None and 23.8 <= found <= 25.0
    assert calibrated([*few, (24.6, 0.01), (33.0, 0.0)]) is None, "a far arm does not count"


def test_rule_and_policy_are_read_at_equal_violations(tmp_path: Path) -> None:
    found = results()
    row = next(line for line in tables.equal_violations_table(found).splitlines() if line.startswith("| 2 % |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert float(cells[1]) > float(cells[2]) and cells[3] == "+20.0 %"
    shown = tables.arms_table(found)
    assert "| compared | policy, aimed at 4 % | 2 | 7.5 (7.5 to 7.5) |" in shown and "all hold" in shown
    assert "Objective: 20 ms" in tables.conditions_line(found)
    tables.draw(found, tmp_path / "plot.svg")
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_pairs_of_one_setting_are_held_against_each_other_run_by_run() -> None:
    found = results()
    found["entries"][4]["arms"] = [arm("policy", 0.04, 8, 0.5), arm("rule", 0.04, 4, 1.0)]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables.pairs_table(found).splitlines()]
    intervals = INTERVALS - FIRST
    assert lines[2] == ["aimed at 1 %", "2", "0 %", "0 %", "+0.0 points (+0.0 to +0.0)", "+20.0 % (+20.0 to +20.0)"]
    aimed = lines[4]
    assert aimed[:2] == ["aimed at 4 %", "2"]
    assert aimed[2:4] == [f"{100 * share / intervals:.3g} %" for share in (3.5, 5.5)]
    assert aimed[4].startswith(f"{200 / intervals:+.1f} points (+0.0 to ")
    assert float(aimed[5].split(" ")[0]) == pytest.approx(38.75, abs=0.06) and aimed[5].endswith("(+20.0 to +50.0)")
    assert lines[5][:2] == ["all", "6"]


def test_a_load_that_a_setting_has_not_been_through_is_not_read_yet() -> None:
    found = results()
    whole = tables.fronts(found)["rule"]
    found["entries"].pop()
    left = tables.fronts(found)["rule"]
    assert left.names == whole.names == ("1 %", "2 %", "4 %")
    assert (tables.fronts({"entries": found["entries"][:-1]})["rule"].names) == ("1 %", "2 %"), "no run of it at all"
    for render in (tables.arms_table, tables.equal_violations_table, tables.pairs_table):
        assert render({"entries": []}) == NOT_MEASURED
