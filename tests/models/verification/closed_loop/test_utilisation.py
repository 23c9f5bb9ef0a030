"""Utilisation as a chain: as near to the true one as it says, and good enough to prove a loop that is closed by it."""

from pathlib import Path

import numpy as np
import pytest

from feature_store.errors import InputError
from models.verification.closed_loop.chain_builder import chain_values
from models.verification.closed_loop.check_guarantee import check_guarantee
from models.verification.closed_loop.fluid_law import FluidLaw, Observation
from models.verification.closed_loop.guarantee import closed_loop_guarantee
from models.verification.closed_loop.one_step import OneStep
from models.verification.closed_loop.simulation import simulate
from models.verification.closed_loop.utilisation import utilisation
from models.verification.verdict import Status
from tests.models.verification.closed_loop.policies import law, policy

SLACK = 1e-9
START = 1.0


@pytest.mark.parametrize("kinks", [2, 6, 24])
@pytest.mark.parametrize("step_s", [1.0, 15.0])
def test_the_chain_is_as_near_as_it_says(kinks: int, step_s: float) -> None:
    about = FluidLaw(step_s, 0.2, 0.9, 0.05, 1.2, 0.05)
    chain, off = utilisation(about, 3.0, kinks)
    share = np.random.default_rng(0).random((100_000, 3))
    share[:20_000] = np.round(share[:20_000] * 8) / 8
    low, high = np.array([0.0, 0.2, 0.05]), np.array([3.0, 0.9, 1.2])
    x = low + share * (high - low)
    true = np.minimum(1.0, (x[:, 1] + x[:, 0] / step_s) / x[:, 2])
    found = np.abs(chain_values(chain, x)[:, 0] - true).max()
    assert found <= off < 10 * found + SLACK


@pytest.mark.slow
def test_a_policy_that_sees_utilisation_alone_is_proved_in_the_loop(tmp_path: Path) -> None:
    scaler = policy([np.array([[1.0]]), np.array([[1.1]])], [np.array([-0.3]), np.array([0.3])])
    chain, off = utilisation(law(), START + 1.0)
    seen = Observation.of([[0, 0, 0, 1]], [-off], [off], chain)
    found = closed_loop_guarantee(scaler, seen, law(), START, tmp_path, seconds=400.0)
    assert found.status is Status.PROVED and found.steps is not None and found.excess_steps is not None
    assert found.backlog is not None and found.excess is not None
    assert check_guarantee(tmp_path, scaler, seen, law()).accepted
    # trajectories in which the policy sees the true utilisation
    true = OneStep(scaler, Observation.of([[0, 0, 0, 1]], function=utilisation(law(), START + 1.0, 2000)[0]), law())
    trajectories = simulate(true, START, found.excess_steps + 300)
    assert trajectories.largest(found.steps)[0] <= found.backlog + SLACK
    assert trajectories.largest(found.excess_steps)[1] <= found.excess + SLACK


def test_a_load_that_may_be_nothing_has_no_logarithm() -> None:
    with pytest.raises(InputError, match="utilisation needs a load and a capacity above 0"):
        utilisation(FluidLaw(1.0, 0.0, 0.9, 0.05, 1.2, 0.05), 3.0)
