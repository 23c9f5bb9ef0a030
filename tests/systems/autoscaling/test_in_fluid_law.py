"""An autoscaler in the fluid law: what it is assumed to see there, against what the environment shows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from models.control.policy.policy import Policy, PolicyShape
from models.control.policy.policy_chain import chain
from models.verification.checker.chain import Chain
from systems.autoscaling.guarantee import in_fluid_law
from systems.autoscaling.guarantee.catching_up import CatchingUp
from systems.autoscaling.guarantee.in_fluid_law import FloatArray, Service, lags, law_of, run_law, scaler_of
from systems.autoscaling.interface import CONTROLS, SIGNALS, STEP_SECONDS
from systems.autoscaling.simulator.simulator import Autoscaling, Physics

SERVICE = Service(cpu_ms=1.0, memory_mib=100.0, slo_ms=15.0)
NAMES = [signal.name for signal in SIGNALS]
CALM = Physics(start_up=False, late_metrics=False, noisy_metrics=False, neighbours=False)
LAW = law_of(SERVICE, (1.0, 5.0), 0.02, (0.5, 2.0), (2, 32))


@pytest.fixture(scope="module")
def policy() -> Chain:
    """An untrained one: its anchor is a rule of its own."""
    weights, biases = chain(Policy(PolicyShape(SIGNALS, CONTROLS, Autoscaling.features, (8,),
                                               anchors=Autoscaling.anchors), torch.Generator().manual_seed(0)))
    return Chain(tuple(weights), tuple(biases), ("relu",) * (len(weights) - 1))


def test_summaries_of_the_load_are_as_near_to_it_as_is_assumed() -> None:
    environment = Autoscaling(physics=CALM)
    change, moved, random = 0.03, lags(0.03), np.random.default_rng(0)
    episodes = environment.draw("train", 64, 400, 0)
    # loads in cores of a request a second each, that rise, fall, or move at random by at most `change`
    kinds = np.arange(64) % 3
    steps = np.where(kinds == 0, change, np.where(kinds == 1, -change, 0.0)) * np.ones((400, 1))
    steps[:, kinds == 2] = change * random.choice([-1.0, 1.0], (400, int((kinds == 2).sum())))
    load = 20.0 + np.cumsum(steps, axis=0)
    state = environment.reset(replace(episodes, rate=torch.tensor(load, dtype=torch.float32)))
    seen = []
    for _ in range(398):
        state, _ = environment.step(state, torch.stack([state.limit, state.memory, state.replicas], dim=1))
        seen.append(environment.observe(state).numpy())
    rows = np.stack(seen)
    off = rows[..., [NAMES.index(name) for name in moved]] - rows[..., [NAMES.index("rate_rps")]]
    for place, (low, high) in enumerate(moved.values()):
        assert low - 1e-3 <= off[..., place].min() and off[..., place].max() <= high + 1e-3
    tight = [abs(off[..., place]).max() / high for place, (_, high) in enumerate(moved.values())]
    assert min(tight) > 0.9  # no more is assumed than happens


def test_no_step_of_the_environment_leaves_less_capacity_than_is_assumed() -> None:
    environment = Autoscaling(physics=CALM)
    state = environment.reset(environment.draw("train", 64, 3, 0))
    for low, high in ((2, 32), (4, 32), (1, 64)):
        law = law_of(SERVICE, (1.0, 5.0), 0.0, (0.125, 16.0), (low, high))
        replicas = torch.arange(64).float().clamp(low, high)
        now = state._replace(limit=torch.full((64,), 2.0), replicas=replicas)
        after, _ = environment.step(now, torch.tensor([[0.0, 0.0, float(low)]]).expand(64, 3))
        share = (after.limit * after.replicas) / (now.limit * now.replicas)
        assert float(share.min()) == pytest.approx(law.kept_share, rel=1e-6)


def test_what_is_seen_under_a_backlog_is_what_the_law_shows(policy: Chain) -> None:
    """The observation that is proved about, at a point, against the rows that runs of the law feed."""
    rows: list[FloatArray] = []

    def execute(seen: FloatArray) -> FloatArray:
        rows.append(seen)
        return seen[:, [NAMES.index(control.current) for control in CONTROLS]]

    still = replace(LAW, change=0.0, limit_high=0.5, replicas_high=2)  # one core, under loads above it
    runs = run_law(execute, SERVICE, still, 60.0, 8, count=64)
    claim = CatchingUp(scaler_of(policy, SERVICE, still), still, 2, 4.0, 0.5, 1.0)
    scaler, late = claim.scaler, runs.backlog[-2] > 20.0
    assert late.any()
    for seen, load, c in zip(rows[-1][late], runs.load[-1][late], runs.capacity[-1][late], strict=True):
        known = scaler.matrix @ np.array([load, 0.5, 2.0, c, seen[NAMES.index("p99_ms")]])
        assert (known + scaler.low - 1e-9 <= seen).all() and (seen <= known + scaler.high + 1e-9).all()
        assert seen[NAMES.index("p99_ms")] >= 990.0 * 20.0 / c


def test_runs_keep_the_law() -> None:
    def execute(seen: FloatArray) -> FloatArray:
        return np.stack([np.full(len(seen), 1.0), np.full(len(seen), 100.0), np.full(len(seen), 3.0)], axis=1)

    runs = run_law(execute, SERVICE, LAW, 60.0, 200)
    backlog = np.maximum(runs.backlog[:-1] + (runs.load[1:] - runs.capacity[1:]) * STEP_SECONDS, 0.0)
    np.testing.assert_allclose(runs.backlog[1:], backlog, atol=1e-9)
    assert (runs.capacity[1:] == 3.0).all() and np.abs(np.diff(runs.load, axis=0)).max() <= LAW.change + 1e-12
    assert runs.load.min() >= LAW.load_low and runs.load.max() <= LAW.load_high


def test_a_server_in_place_of_the_fluid_is_asked_for_every_step() -> None:
    asked = []

    def serve(b: FloatArray, a: FloatArray, k: FloatArray, limit: FloatArray
              ) -> tuple[FloatArray, FloatArray, FloatArray]:
        asked.append(k * limit)
        return np.full_like(b, 7.0), a, np.zeros_like(b)

    runs = run_law(lambda seen: seen[:, [0, 1, 2]], SERVICE, LAW, 60.0, 5, count=4, serve=serve)
    assert len(asked) == 5 and (runs.backlog == 7.0).all()
    assert LAW.step_s == in_fluid_law.STEP_SECONDS
