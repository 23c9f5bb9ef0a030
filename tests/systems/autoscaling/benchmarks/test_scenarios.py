import pytest

from systems.autoscaling.benchmarks.scenarios import (
    LABELS,
    STEPS,
    conditions_line,
    draw_patterns,
    draw_scenarios,
    measure_scenario,
    scenarios_table,
)
from systems.autoscaling.simulator.episodes import SCENARIOS
from systems.autoscaling.simulator.simulator import Autoscaling


@pytest.fixture(scope="module")
def results():
    environment = Autoscaling()
    names = ("", "payload_image", "load_high_to_low", "load_low_to_high")
    return {"applications": 24, "date": "2026-11-22", "traces": "made trace", "patterns": {"steps": [1.0, 2.0]},
            "series": [[1.0, 0.5]], "scenarios": [measure_scenario(environment, name, 24) for name in names]}


def test_every_scenario_has_a_label():
    assert set(LABELS) == {"", *SCENARIOS}


def test_the_change_is_in_the_middle_and_concerns_whom_it_should(results):
    none, image, falling, rising = results["scenarios"]
    half = STEPS // 2
    assert none["affected"] == falling["affected"] == 1.0 and 0 < image["affected"] < 1
    assert image["cpu_ms"][half] / image["cpu_ms"][half - 1] > 1.5
    assert max(image["cpu_ms"][:half]) < min(image["cpu_ms"][half:])
    assert falling["rate_rps"][half] < 0.6 * falling["rate_rps"][half - 1]
    assert rising["rate_rps"][half] > 1.7 * rising["rate_rps"][half - 1]


def test_larger_payloads_cost_cores_and_violations(results):
    image = results["scenarios"][1]["halves"]
    assert image["after"]["cores"] > 1.5 * image["before"]["cores"]
    assert image["after"]["violated"] > image["before"]["violated"]


def test_tables_and_plots_are_made_of_results(results, tmp_path):
    assert len(scenarios_table(results).split("\n")) == 2 + 4
    assert "24 held-out applications" in conditions_line(results)
    draw_scenarios({**results, "scenarios": [*results["scenarios"], results["scenarios"][1]]}, tmp_path / "one.svg")
    draw_patterns(results, tmp_path / "other.svg")
    assert (tmp_path / "one.svg").stat().st_size > 10_000 and (tmp_path / "other.svg").stat().st_size > 5_000
