"""What is simulated is as good, or as much better, as the table says; a benchmark that was stopped goes on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.gates import false_promotion
from benchmarks.gates.autoscaled_cases import Figure
from benchmarks.gates.false_promotion import (
    autoscaler_table,
    block_table,
    equal_table,
    margin_table,
    measure,
    missed_table,
    zero_table,
)
from benchmarks.gates.simulated_cases import FAMILIES, Simulation, Traded

SIMULATIONS = {f"{family}-{kind}": simulation for family, kinds in FAMILIES.items()
               for kind, simulation in kinds.items()}
MANY, SAMPLES = 4000, 200


@pytest.mark.parametrize(("name", "improvement"), [
    (name, improvement) for name, simulation in SIMULATIONS.items() for improvement in (0.0, 0.2)
    if not (isinstance(simulation, Traded) and improvement)])
def test_a_challenger_is_better_by_the_share_that_is_said(name: str, improvement: float) -> None:
    simulation: Simulation = SIMULATIONS[name]
    rng, sign = np.random.default_rng(1), -1 if simulation.better == "smaller" else 1
    means = np.array([[scores.mean() for scores in simulation.draw(MANY, improvement, rng)] for _ in range(SAMPLES)])
    gains = sign * (means[:, 0] - means[:, 1])
    size = abs(means[:, 1].mean())
    # the mean of 200 samples lies within five of its standard errors, and within 3 % of the mean or what luck explains
    error = gains.std() / np.sqrt(SAMPLES)
    assert abs(gains.mean() - improvement * size) < 5 * error + 0.03 * improvement * size


@pytest.mark.parametrize("name", SIMULATIONS)
def test_both_models_share_a_part_of_every_case(name: str) -> None:
    rng = np.random.default_rng(2)
    correlations = [stats.spearmanr(*SIMULATIONS[name].draw(MANY, 0.0, rng)).statistic for _ in range(20)]
    assert np.mean(correlations) > 0.15


@pytest.mark.parametrize(("better", "sign"), [("smaller", -1.0), ("larger", 1.0)])
def test_two_autoscalers_are_as_good_on_average_over_the_days_of_a_workload(better: Any, sign: float) -> None:
    scores = np.random.default_rng(0).lognormal(size=(2, 3, 40, 10)) * np.arange(1, 7).reshape(2, 3, 1, 1)
    figure = Figure("cost", better, *scores)
    for workload in range(3):
        for improvement in (0.0, 0.2):
            means = np.mean([figure.pair(workload, repeat, improvement) for repeat in range(40)], axis=(0, 2))
            assert means[1] == pytest.approx(scores[0, workload].mean())
            assert means[0] == pytest.approx(means[1] * (1.0 + sign * improvement))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CASES": (16,), "BLOCKS_CASES": (16,), "MARGIN_CASES": 16}.items():
        monkeypatch.setattr(false_promotion, name, value)


def test_what_was_measured_is_kept_and_the_rest_is_measured(small: None, tmp_path: Path) -> None:
    path, said = tmp_path / "results.json", []
    first = measure(path, 3, 2, said.append, days=2)
    workloads = sum(line.startswith("autoscaling, ") for line in said)
    assert workloads == 8 and len(said) - workloads == len(first["cells"]) == 5 * 3 + 4 * 3 + 1
    stored: dict[str, Any] = json.loads(path.read_text())
    stored["cells"] = stored["cells"][:-1]
    path.write_text(json.dumps(stored))
    said.clear()
    again = measure(path, 3, 2, said.append, days=2)
    assert len(said) == 1
    assert all(again[part] == first[part] for part in ("cells", "margins", "blocks", "autoscalers"))
    for render in (equal_table("errors"), equal_table("rewards"), missed_table("rewards", 0.05), margin_table,
                   zero_table, block_table, autoscaler_table):
        assert render(again).startswith("| ")
