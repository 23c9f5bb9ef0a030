"""Agents within their allotments are within the cluster together: by the sum stepped out, by its check."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from feature_store.errors import InputError
from models.control.contract.derived_signals import NUMBERS, allotment
from systems.shared_cluster.environment import ENVIRONMENT, SETTINGS
from systems.shared_cluster.guarantee import LIMITS
from systems.shared_cluster.interface import LEAST_CORES

PROPERTIES = yaml.safe_load((Path(__file__).parents[3] / "systems/shared_cluster/shared_cluster.yaml").read_text())[
    "specification"]["properties"]
MARGIN = 0.001
ORDER: dict[str, Any] = {"upper": "allotment_cores", "lower": "target_cores"}


def found_of(properties: Any = PROPERTIES, **changed: float) -> dict[str, Any]:
    return dict(LIMITS.guarantees(properties, {one.name: one.default for one in SETTINGS} | changed))


@pytest.mark.parametrize(("functions", "cores"), [(2, 8.0), (12, 48.0), (30, 9.0), (200, 40.0)])
def test_no_agents_within_their_allotments_leave_the_cluster(functions: int, cores: float) -> None:
    """From twice the cluster on: all take what they may, some give it away, needs jump."""
    random, limits = np.random.default_rng(functions), np.full(functions, 2.0 * cores / functions)
    known = LIMITS.excess(functions, cores, MARGIN)
    assert known is not None
    share, steps = known
    most = 0.0
    for step in range(300):
        need = random.exponential(1.0, functions) ** 3 + 1e-9
        allotted = np.array([allotment(one, limits.sum(), cores, part, NUMBERS)
                             for one, part in zip(limits, need / need.sum(), strict=True)])
        wished = allotted + MARGIN if step % 7 else allotted * random.random(functions)
        limits = np.maximum(wished, LEAST_CORES)
        if step + 1 >= steps:
            most = max(most, limits.sum() / cores - 1.0)
    assert most <= share + 1e-3 and most > 0.2 * share


def test_it_says_of_how_many_functions_and_cores() -> None:
    one = found_of(functions=12.0, cluster_cores=48.0)["found"][0]
    assert one["status"] == "PROVED" and one["bound"] == pytest.approx(48.0 + 12 * MARGIN * 4.0 / (4.0 - LEAST_CORES))
    assert "12 functions" in one["statement"] and "a cluster of 48, for ever" in one["statement"]
    crowded = found_of(functions=1000.0, cluster_cores=62.0)
    assert crowded["found"][0]["status"] == "UNKNOWN" and crowded["shipped"] is None


def test_only_a_bound_that_holds_in_every_state_counts() -> None:
    assert LIMITS.margin_of(PROPERTIES) == MARGIN
    written = [{"order": {**ORDER, "factor": 1.0, "margin": -0.5}}]
    assert LIMITS.margin_of(written) == 0.5, "as specification.yaml has it"
    others: list[dict[str, Any]] = [
        {"order": {**ORDER, "when": {"usage": [0.5, 1]}}}, {"order": {**ORDER, "at_least": {"cores": "fair_cores"}}},
        {"order": {"upper": "fair_cores", "lower": "target_cores"}}, {"order": {**ORDER, "factor": 0.5}},
        {"order": {"upper": "target_cores", "lower": "allotment_cores"}}, {"monotone": {}}]
    assert LIMITS.margin_of(others) is None
    assert LIMITS.margin_of([*others, {"order": {**ORDER, "margin": -0.5}}, {"order": ORDER}]) == 0.0
    reason = found_of(others)["found"][0]["reason"]
    assert reason and "must be proved" in LIMITS.check(found_of()["shipped"].content, others).reason


def test_a_cluster_of_hardly_more_than_the_least_limits_is_refused_and_not_waited_for() -> None:
    cores = 1e6 * LEAST_CORES * (1.0 + 1e-12)
    content = json.dumps({"format": LIMITS.form, "functions": 1_000_000, "cores": cores}).encode()
    assert "clearly more than 0.0625 cores" in LIMITS.check(content, [{"order": ORDER}]).reason
    assert "clearly more than 0.0625 cores" in LIMITS.check(content, [{"order": {**ORDER, "margin": -MARGIN}}]).reason


@pytest.mark.parametrize(("change", "reason"), [
    ({"cores": 0.5}, "on average"), ({"functions": 0}, "1 to 1000000"), ({"functions": True}, "1 to 1000000"),
    ({"functions": 12.5}, "1 to 1000000"), ({"cores": -1}, "above 0"), ({"cores": None}, "above 0"),
    ({"margin": 0}, "must be assay-cluster"), ({"format": "x"}, "must be assay-cluster")])
def test_a_changed_guarantee_is_refused(change: dict[str, Any], reason: str) -> None:
    content = found_of()["shipped"].content
    assert LIMITS.check(content, PROPERTIES).accepted
    found = LIMITS.check(json.dumps({**json.loads(content), **change}).encode(), PROPERTIES)
    assert not found.accepted and reason in found.reason
    assert not LIMITS.check(b"PK", PROPERTIES).accepted


@pytest.mark.parametrize(("cores", "limits", "said"), [
    (2.9, {}, "cluster_cores: expected 0.25 to 64 for each of 12 functions, got 2.9"),
    (800.0, {}, "cluster_cores: expected 0.25 to 64 for each of 12 functions, got 800"),
    (48.0, {"target_cores": (1.0, 2.0)}, "limits: expected none, for a function's allotment is its limit, got "
                                         "target_cores")])
def test_a_workload_that_leaves_too_little_too_much_or_limits_is_refused(
        cores: float, limits: dict[str, tuple[float, float]], said: str) -> None:
    load = pd.DataFrame({"window_start": pd.date_range("2026-01-01", periods=400, freq="1min", tz="UTC"),
                         "window_s": 60.0, "rate_rps": 5.0})
    with pytest.raises(InputError) as raised:
        ENVIRONMENT.twin(load, {"cluster_cores": cores}, limits)
    assert str(raised.value) == said
    assert ENVIRONMENT.twin(load, {"cluster_cores": 3.0}, {}).agents == 12
