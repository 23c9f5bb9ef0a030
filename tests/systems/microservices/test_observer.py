"""The observer beside a live service says what the simulator says, the coordinator's look too, and so do rules."""

import math

import numpy as np
import pytest
import torch

from systems.microservices.coordinator import looked_at
from systems.microservices.interface import CONTROLS, SIGNALS
from systems.microservices.observer import ServiceObserver
from systems.microservices.rules import RULES
from systems.microservices.simulator import Microservices, State

ENVIRONMENT = Microservices(4)
NAMES = [signal.name for signal in SIGNALS]
EXACT = 5e-4  # float32 of the simulator


def rows_of(state: State) -> list[dict[str, float]]:
    return [dict(zip(NAMES, row, strict=True)) for row in ENVIRONMENT.observe(state).tolist()]


@pytest.mark.parametrize("rule", list(RULES))
def test_signals_outcome_and_rules_are_the_simulators(rule: str) -> None:
    """The four services of an application beside four observers with a rule each."""
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("held_out", 1, 40, 2, "many", [3]))
    observers = [ServiceObserver() for _ in range(4)]
    batch, own = RULES[rule].make({}), [RULES[rule].make({}) for _ in range(4)]
    for one in (batch, *own):
        one.start(4 if one is batch else 1)
    for observer, row in zip(observers, rows_of(state), strict=True):
        observer.restore({name: row[name] for name in observer.state()})
    for step in range(30):
        rows = rows_of(state)
        asked = batch.act({name: np.array([row[name] for row in rows]) for name in NAMES}, float(step))
        live = [one.act({name: np.array([value]) for name, value in row.items()}, float(step))
                for one, row in zip(own, rows, strict=True)]
        assert [float(said["target_cores"][0]) for said in live] == asked["target_cores"].tolist()
        state, outcome = ENVIRONMENT.step(state, torch.tensor(asked[CONTROLS[0].name], dtype=torch.float32)[:, None])
        came = []
        for observer, true in zip(observers, rows_of(state), strict=True):
            told = observer.observe({name: true[name] for name in observer.measured}, {"cores": true["cores"]}, 1.0)
            for name in NAMES:
                assert told[name] == pytest.approx(true[name], rel=EXACT, abs=EXACT), (name, step)
            came.append(observer.outcome(told))
        for name in ("reward", "cost", "violation", "violated"):
            mean = float(np.mean([one[name] for one in came]))
            assert mean == pytest.approx(getattr(outcome, name).item(), rel=EXACT, abs=EXACT), name


def test_the_coordinator_tells_each_what_the_simulator_does() -> None:
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 1, 9, 1, "many"))
    state, _ = ENVIRONMENT.step(state, state.seen["cores"].reshape(-1, 1) * torch.tensor([[0.9], [0.8], [1.0], [0.9]]))
    seen = {name: values[0].tolist() for name, values in state.seen.items()}
    names = list("abcd")
    told_of = ("rate_rps", "latency_ms", "most_latency_ms", "type_share", "importance", "congestion_intensity",
               "own_latency_ms")
    status = {name: {part: seen[part][at] for part in told_of} | {
        "used_cores": seen["usage"][at] * seen["cores"][at],
        "served_rps": seen["usage"][at] * seen["cores"][at] / seen["demand_cores"][at] * seen["rate_rps"][at]}
        for at, name in enumerate(names)}
    limits, needs = ({name: seen[of][at] for at, name in enumerate(names)} for of in ("cores", "mean_demand_cores"))
    told = looked_at(state.episodes.capacity.item(), limits, status, {}, needs)
    for at, name in enumerate(names):
        for part, value in told[name].items():
            assert value == pytest.approx(seen[part][at], rel=1e-3, abs=2e-3), (name, part)
    assert set(told["a"]) == set(ServiceObserver.measured)


def test_what_nobody_knows_stays_unknown_and_who_is_not_known_to_be_innocent_is_suspected() -> None:
    observer = ServiceObserver()
    first = observer.observe({"rate_rps": 4.0, "demand_cores": 2.0, "latency_ms": 30.0}, {"cores": 1.0}, 0.0)
    assert first["mean_demand_cores"] == 2.0 and first["rate_change"] == 0.0
    assert math.isnan(first["near_latency_ms"]) and math.isnan(first["usual_latency_ms"])
    later = observer.observe({"rate_rps": 1.0, "latency_ms": 30.0, "most_latency_ms": 20.0}, {"cores": 1.0}, 1.0)
    assert later["rate_change"] == -0.75 and later["pressing_latency_ms"] == 30.0
    innocent = {"latency_ms": 30.0, "most_latency_ms": 20.0, "importance": 0.05}
    assert observer.observe(innocent, {"cores": 1.0}, 1.0)["pressing_latency_ms"] == 5.0
    behind = observer.observe(innocent | {"own_latency_ms": 2000.0}, {"cores": 1.0}, 1.0)
    assert behind["pressing_latency_ms"] == 80.0
    assert all(math.isnan(value) for value in observer.outcome(later).values())
