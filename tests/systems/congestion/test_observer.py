"""The observer beside a live sender says what the simulator says."""

import math

import numpy as np
import pytest
import torch

from models.control.simulation.tensors import TENSORS
from systems.congestion import equations as law
from systems.congestion.observer import CongestionObserver
from systems.congestion.simulator import Congestion

ENVIRONMENT = Congestion()
NAMES = [signal.name for signal in ENVIRONMENT.signals]


def row_of(observation: torch.Tensor) -> dict[str, float]:
    return dict(zip(NAMES, observation[0].tolist(), strict=True))


def test_its_signals_and_its_outcome_are_the_simulators() -> None:
    """But for what an observer cannot know: the reset's intervals, and the bandwidth in the cost."""
    for application in range(5):
        state = ENVIRONMENT.reset(ENVIRONMENT.draw("held_out", 1, 60, 2, "", [application]))
        observer = CongestionObserver()
        first = row_of(ENVIRONMENT.observe(state))
        observer.observe(first, {"rate_pps": first["rate_pps"]}, 0.0)
        observer.restore({name: first.get(name, math.nan) for name in observer.state()})
        for step in range(50):
            target = ENVIRONMENT.observe(state)[:, :1] * (1.3 if step % 7 < 3 else 0.8)
            state, outcome = ENVIRONMENT.step(state, target)
            true = row_of(ENVIRONMENT.observe(state))
            told = observer.observe({name: true[name] for name in observer.measured},
                                    {"rate_pps": true["rate_pps"]}, true["interval_s"])
            for name in set(NAMES) - {"most_queueing_s", "mean_rtt_slope"}:
                assert told[name] == pytest.approx(true[name], rel=1e-3, abs=1e-4), (name, step)
            came = observer.outcome(told | {"most_queueing_s": true["most_queueing_s"]})
            assert came["reward"] == pytest.approx(float(outcome.reward), rel=1e-3, abs=1e-3)
            assert came["violated"] == float(outcome.violated)


def test_what_is_not_measured_is_not_known_and_spoils_nothing() -> None:
    observer = CongestionObserver()
    known = {"acked_pps": 100.0, "rtt_s": 0.05, "min_rtt_s": 0.05, "rtt_slope": -0.2, "loss_share": 0.0,
             "interval_s": 0.03}
    before = observer.observe(known, {"rate_pps": 100.0}, 0.0)
    silent = observer.observe({}, {"rate_pps": 100.0}, 0.03)
    assert math.isnan(silent["queueing_s"]) and silent["most_acked_pps"] == before["most_acked_pps"]
    assert np.isnan(list(observer.outcome(silent | {"most_queueing_s": 0.1}).values())).all()
    other = CongestionObserver()
    other.restore(observer.state())
    assert other.state() == observer.state()


def test_the_least_round_trip_is_forgotten_at_the_end_of_a_probe_alone() -> None:
    """With at most four packets in flight, for five seconds and sixteen round trips, without a break."""
    least = law.LeastRoundTrip()
    assert least.seconds is None and least.heard(0.05, 400.0, 0.1) == 0.05
    for _ in range(600):  # a queue that stands for an hour
        assert least.heard(0.4, 400.0, 6.0) == 0.05
    for rates, forgotten in (([9.0] * 57, False), ([11.0, *[9.0] * 57], False), ([9.0] * 2, True)):
        for rate in rates:
            assert least.seconds == 0.05
            least.heard(0.4, rate, 0.1)
        assert (least.seconds == 0.4) == forgotten
    assert least.heard(0.3, 400.0, 0.1) == 0.3 and least.heard(0.5, 400.0, 0.1) == 0.3


def test_many_least_round_trips_are_those_of_one_each() -> None:
    random, count = np.random.default_rng(0), 40
    ones = [law.LeastRoundTrip() for _ in range(count)]
    least, probing = torch.full((count,), 64.0), torch.zeros(count)
    for _ in range(200):
        trips = torch.tensor(random.uniform(0.1, 0.5, count))
        rates = torch.tensor(random.choice([5.0, 7.0, 40.0], count))
        least, probing = law.least_round_trip(least, probing, trips, rates, 1.0, TENSORS)
        assert least.tolist() == pytest.approx([one.heard(float(trip), float(rate), 1.0) for one, trip, rate in
                                                zip(ones, trips, rates, strict=True)])

