"""The observer beside a live processor says what the simulator says, and rules say the same beside both."""

import math

import numpy as np
import pytest
import torch

from models.control.contract.controller import Array
from systems.cpu_frequency.interface import CONTROLS
from systems.cpu_frequency.observer import FrequencyObserver
from systems.cpu_frequency.rules import RULES
from systems.cpu_frequency.simulator import State
from tests.systems.cpu_frequency.plain_programs import ENVIRONMENT, NAMES

EXACT = 1e-4  # float32 of the simulator


def rows_of(state: State) -> list[dict[str, float]]:
    return [dict(zip(NAMES, row, strict=True)) for row in ENVIRONMENT.observe(state).tolist()]


@pytest.mark.parametrize("rule", list(RULES))
def test_signals_outcome_and_rules_are_the_simulators(rule: str) -> None:
    """Five services in one batch beside five observers with a rule each, whose clocks go by its own decisions."""
    count = 5
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("held_out", count, 60, 2, "bursts", list(range(count))))
    observers = [FrequencyObserver() for _ in range(count)]
    batch, own = RULES[rule].make({}), [RULES[rule].make({}) for _ in range(count)]
    batch.start(count)
    for one in own:
        one.start(1)
    for observer, row in zip(observers, rows_of(state), strict=True):
        observer.observe(row, row, 0.0)
        observer.restore({name: row[name] for name in observer.state()})
    for step in range(50):
        asked = batch.act({name: np.array([row[name] for row in rows_of(state)]) for name in NAMES}, float(step))
        state, outcome = ENVIRONMENT.step(state, torch.tensor(asked[CONTROLS[0].name], dtype=torch.float32)[:, None])
        for number, true in enumerate(rows_of(state)):
            observer = observers[number]
            told = observer.observe({name: true[name] for name in observer.measured},
                                    {"frequency_ghz": true["frequency_ghz"]}, 1.0)
            for name in set(NAMES) - {"most_latency_ms"}:
                assert told[name] == pytest.approx(true[name], rel=EXACT, abs=EXACT), (name, step)
            came = observer.outcome(told | {"most_latency_ms": true["most_latency_ms"]})
            for name in ("reward", "cost", "violation", "violated"):
                assert came[name] == pytest.approx(float(getattr(outcome, name)[number]), rel=EXACT, abs=EXACT)
    # what they would do now, each by itself and all at once
    live: list[Array] = []
    for number, true in enumerate(rows_of(state)):
        fresh = {name: np.array([value]) for name, value in true.items()}
        live.append(own[number].act(fresh, 0.0)[CONTROLS[0].name])
    batch.start(count)
    at_once = batch.act({name: np.array([row[name] for row in rows_of(state)]) for name in NAMES}, 0.0)
    assert np.concatenate(live).tolist() == at_once[CONTROLS[0].name].tolist()


def test_the_mean_of_the_load_weighs_an_interval_by_its_length() -> None:
    """Sixteen seconds in parts that no second coincides with: 1 - (15/16)^t of the way, however it is cut."""
    observer = FrequencyObserver()
    observer.observe({"rate_rps": 100.0}, {}, 0.0)
    for seconds in (0.7, 1.9, 3.3, 0.1):
        told = observer.observe({"rate_rps": 200.0}, {}, seconds)
    assert told["mean_rate_rps"] == pytest.approx(200.0 - 100.0 * (15 / 16) ** 6.0)


def test_what_is_not_measured_is_not_known_and_spoils_nothing() -> None:
    observer = FrequencyObserver()
    known = {"rate_rps": 100.0, "ips_1e9": 0.5, "latency_ms": 20.0, "room_c": 9.0, "usage": 0.4, "stall_share": 0.2,
             "delivered_ghz": 2.0, "power_share": 0.4}
    observer.observe(known, {"frequency_ghz": 2.0}, 0.0)
    silent = observer.observe({}, {"frequency_ghz": 2.5}, 1.0)
    assert math.isnan(silent["pressing_latency_ms"]) and silent["mean_rate_rps"] == 100.0
    assert math.isnan(silent["ips_gain"]), "of what is now nobody knows"
    assert np.isnan(list(observer.outcome(silent | {"most_latency_ms": 40.0}).values())).all()
    again = observer.observe(known | {"ips_1e9": 0.6}, {"frequency_ghz": 3.0}, 1.0)
    assert again["ips_gain"] == 0.0, "and of what was, neither"
    later = observer.observe(known | {"ips_1e9": 0.8}, {"frequency_ghz": 3.3}, 1.0)
    assert later["ips_gain"] == pytest.approx(0.25)
    other = FrequencyObserver()
    other.restore(observer.state())
    assert other.state() == observer.state() and "frequency_ghz" in observer.state()


def test_what_is_below_the_range_gains_nothing_as_in_the_simulator() -> None:
    observer = FrequencyObserver()
    observer.observe({"ips_1e9": 1e-7}, {"frequency_ghz": 2.0}, 0.0)
    assert observer.observe({"ips_1e9": 1e-3}, {"frequency_ghz": 2.5}, 1.0)["ips_gain"] == 0.0
    assert observer.observe({"ips_1e9": 0.0}, {"frequency_ghz": 2.7}, 1.0)["ips_gain"] == 0.0
    assert observer.observe({"ips_1e9": 0.5}, {"frequency_ghz": 3.0}, 1.0)["ips_gain"] > 0.5
