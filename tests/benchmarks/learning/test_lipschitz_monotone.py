"""The peer learner: monotone and within its constant wherever it is sampled, tuned without the test side."""

import tomllib

import numpy as np
import pytest
import torch

from benchmarks.harness.isolation import ROOT
from benchmarks.learning import lipschitz_monotone
from benchmarks.learning.lipschitz_monotone import INSTALL, PACKAGE, build, missing, own_settings, tune_and_train
from models.training.settings import TrainingSettings

installed = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SETTINGS = TrainingSettings(method="plain", epochs=8, batch_size=32)
# float32 rounding of sums near 1.
ROUNDING = 1e-5


def test_a_package_that_is_not_there_is_one_line_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lipschitz_monotone, "PACKAGE", "assay-no-such-package")
    line = missing()
    assert line is not None and "left out" in line and line.endswith(INSTALL) and "\n" not in line
    assert own_settings()["package"] is None


def test_the_command_installs_what_the_extra_pins() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (pin,) = [requirement for requirement in extras["peers"] if requirement.startswith(PACKAGE)]
    assert f"pip install '{pin}'" == INSTALL


@installed
@pytest.mark.parametrize("hidden", [[8], [6, 6], [5, 7]])
@pytest.mark.parametrize("constant", [0.5, 3.0])
def test_every_slope_has_its_sign_and_stays_within_the_constant(hidden: list[int], constant: float) -> None:
    generator = np.random.default_rng(0)
    network = build(4, hidden, [(0, 1), (2, -1)], constant, seed=1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.as_tensor(generator.normal(0, 5, tuple(parameter.shape)), dtype=torch.float32))
    points = torch.as_tensor(generator.random((500, 4)), dtype=torch.float32).requires_grad_()
    (slopes,) = torch.autograd.grad(network(points).sum(), points)
    assert (slopes[:, 0] >= -ROUNDING).all() and (slopes[:, 2] <= ROUNDING).all()
    assert (slopes[:, [1, 3]].abs() <= constant + ROUNDING).all()
    assert slopes[:, [1, 3]].abs().max() > 0.01 * constant


@installed
def test_the_seed_decides_the_start_and_nothing_else_is_touched() -> None:
    state = torch.random.get_rng_state()
    one, same, other = (next(build(3, [4], [], 1.0, seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), state)


@installed
def test_the_constant_that_fits_the_held_out_rows_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slope of 1.5 against the specified direction's is out of reach of the small constant."""
    monkeypatch.setattr(lipschitz_monotone, "CONSTANTS", (0.1, 1.0))
    x = np.random.default_rng(0).random((300, 2))
    y = 1.5 * x[:, 0] - 0.8 * x[:, 1]
    held_out = np.arange(300) % 5 == 0
    trained = tune_and_train(x, y, held_out, [(0, 1)], [16], SETTINGS, 0)
    assert trained.constant == 1.0
    assert np.mean((trained.predict(x) - y) ** 2) < 0.1 * y.var()
    assert trained.training_seconds > 0 and trained.tuning_seconds > 0


@installed
def test_training_is_repeatable() -> None:
    x = np.random.default_rng(0).random((100, 2))
    held_out = np.arange(100) < 20
    one, same = (tune_and_train(x, x[:, 0], held_out, [(0, 1)], [8], SETTINGS, 3) for _ in range(2))
    assert np.array_equal(one.predict(x), same.predict(x))
    assert (one.learning_rate, one.constant) == (same.learning_rate, same.constant)
