"""The observer beside a live function says what the simulator says, the coordinator's look too, and so do rules."""

import math

import numpy as np
import pytest
import torch

from models.control.contract.derived_signals import NUMBERS, allotment
from systems.shared_cluster.coordinator import looked_at
from systems.shared_cluster.interface import CONTROLS, SIGNALS
from systems.shared_cluster.observer import FunctionObserver
from systems.shared_cluster.rules import RULES
from systems.shared_cluster.simulator import SharedCluster, State

ENVIRONMENT = SharedCluster(4)
NAMES = [signal.name for signal in SIGNALS]
EXACT = 2e-4  # float32 of the simulator


def rows_of(state: State) -> list[dict[str, float]]:
    return [dict(zip(NAMES, row, strict=True)) for row in ENVIRONMENT.observe(state).tolist()]


@pytest.mark.parametrize("rule", list(RULES))
def test_signals_outcome_and_rules_are_the_simulators(rule: str) -> None:
    """The four functions of a cluster beside four observers with a rule each."""
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("held_out", 1, 40, 2, "steady", [3]))
    observers = [FunctionObserver() for _ in range(4)]
    batch, own = RULES[rule].make({}), [RULES[rule].make({}) for _ in range(4)]
    for one in (batch, *own):
        one.start(4 if one is batch else 1)
    for observer, row in zip(observers, rows_of(state), strict=True):
        observer.observe(row, row, 0.0)
        observer.restore({name: row[name] for name in observer.state()})
    for step in range(30):
        rows = rows_of(state)
        asked = batch.act({name: np.array([row[name] for row in rows]) for name in NAMES}, 10.0 * step)
        live = [one.act({name: np.array([value]) for name, value in row.items()}, 10.0 * step)
                for one, row in zip(own, rows, strict=True)]
        assert [float(said["target_cores"][0]) for said in live] == asked["target_cores"].tolist()
        state, outcome = ENVIRONMENT.step(state, torch.tensor(asked[CONTROLS[0].name], dtype=torch.float32)[:, None])
        came = []
        for observer, true in zip(observers, rows_of(state), strict=True):
            told = observer.observe({name: true[name] for name in observer.measured}, {"cores": true["cores"]}, 10.0)
            for name in NAMES:
                assert told[name] == pytest.approx(true[name], rel=EXACT, abs=EXACT), (name, step)
            came.append(observer.outcome(told))
        for name in ("reward", "cost", "violation", "violated"):
            if name == "reward" and step == 0:
                continue  # nobody who starts knows the change before
            mean = float(np.mean([one[name] for one in came]))
            assert mean == pytest.approx(getattr(outcome, name).item(), rel=EXACT, abs=EXACT), name


def test_the_coordinator_tells_each_what_the_simulator_does() -> None:
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 1, 9, 1))
    before = state.seen["cores"]
    state, _ = ENVIRONMENT.step(state, before[:, None] * torch.tensor([[1.4], [0.8], [1.0], [0.9]]))
    seen = {name: values.tolist() for name, values in state.seen.items()}
    names = list("abcd")
    status = {name: {part: seen[part][at] for part in ("rate_rps", "latency_ms", "most_latency_ms")} | {
        "used_cores": seen["usage"][at] * seen["cores"][at],
        "served_rps": seen["usage"][at] * seen["cores"][at] / seen["demand_cores"][at] * seen["rate_rps"][at]}
        for at, name in enumerate(names)}
    limits, needs = ({name: seen[of][at] for at, name in enumerate(names)} for of in ("cores", "mean_demand_cores"))
    told = looked_at(state.clusters.capacity.item(), limits, status,
                     dict(zip(names, before.tolist(), strict=True)), needs)
    for at, name in enumerate(names):
        for part, value in told[name].items():
            assert value == pytest.approx(seen[part][at], rel=1e-3, abs=2e-3), (name, part)
    assert set(told["a"]) == set(FunctionObserver.measured) - {"cores"}


def test_allotments_add_up_to_the_cluster_from_wherever() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        limits, need = random.exponential(1.0, 7), random.exponential(1.0, 7)
        capacity = float(random.uniform(0.3, 3.0) * limits.sum())
        found = [allotment(one, limits.sum(), capacity, part, NUMBERS)
                 for one, part in zip(limits, need / need.sum(), strict=True)]
        assert sum(found) == pytest.approx(capacity, rel=1e-12)
        if limits.sum() <= capacity:
            assert all(mine >= one for mine, one in zip(found, limits, strict=True)), "nobody has to give anything back"


def test_what_nobody_knows_stays_unknown() -> None:
    observer = FunctionObserver()
    first = observer.observe({"rate_rps": 4.0, "demand_cores": 2.0, "latency_ms": 30.0}, {"cores": 1.0}, 0.0)
    assert first["mean_demand_cores"] == 2.0 and first["rate_change"] == 0.0
    assert math.isnan(first["near_latency_ms"]) and math.isnan(first["pressing_latency_ms"])
    # a gap, then an interval and a half: (1 - 1/4)^(1.5 + 1) of what is remembered
    observer.observe({}, {"cores": 1.0}, 10.0)
    later = observer.observe({"rate_rps": 1.0, "demand_cores": 4.0, "latency_ms": 30.0, "fair_cores": 1.0,
                              "most_latency_ms": 5.0}, {"cores": 1.0}, 15.0)
    assert later["mean_demand_cores"] == pytest.approx(4.0 - 2.0 * 0.75**1.5)
    assert later["rate_change"] == 0.0 and (later["near_latency_ms"], later["pressing_latency_ms"]) == (20.0, 20.0)
    assert all(math.isnan(value) for value in observer.outcome(later | dict.fromkeys(["usage"], math.nan)).values())


def test_a_limit_of_nothing_that_was_seen_once_ends_no_observer() -> None:
    measured = dict.fromkeys(FunctionObserver.measured, 1.0)
    observer = FunctionObserver()
    for cores in (2.0, 0.0, 2.0, 2.5, 2.5):
        found = observer.outcome(observer.observe(measured, {"cores": cores}, 10.0))
    assert math.isfinite(found["reward"])
