"""What a run of any method measures, and what it makes of it: never of the policy as it explored."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models.control.training import training_run
from models.control.training.objective import ConstrainedObjective, ObjectiveSettings
from models.control.training.training_run import VALIDATION_SEED, Measured, RunSettings, new_policy, plain_shape, run
from tests.models.control.training.pond import Pond

SEED = 3


class Learner:
    """Adds 1 to its weights in a round; how its exploration went is given."""

    counts = (0, 0)

    def __init__(self, explored: Sequence[Measured], settings: ObjectiveSettings) -> None:
        self.policy, self.objective = new_policy(Pond(), plain_shape(Pond(), ()), 0), ConstrainedObjective(settings)
        self._explored = explored
        with torch.no_grad():
            self.policy.weights[0].zero_()

    def round(self, episode: int) -> tuple[Measured, float]:
        with torch.no_grad():
            self.policy.weights[0].add_(1.0)
        return self._explored[episode], 0.0

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Nothing to restore."""


def trained(monkeypatch: pytest.MonkeyPatch, explored: Sequence[Measured], measured: Sequence[Measured]
            ) -> tuple[training_run.TrainedPolicy, list[Any]]:
    """The run, and what `evaluate` was asked."""
    settings = RunSettings(episodes=len(measured), validate_every=1, validation_applications=17)
    learner, asked, results = Learner(explored, settings.objective), [], iter(measured)

    def evaluate(environment: Any, policy: Any, split: str, count: int, seed: int) -> Measured:
        asked.append((environment, policy is learner.policy, split, count, seed))
        return next(results)

    monkeypatch.setattr(training_run, "evaluate", evaluate)
    pond = Pond()
    found = run(pond, learner, settings, SEED, None, None, {})
    assert {one[0] for one in asked} == {pond}
    return found, [one[1:] for one in asked]


@pytest.mark.parametrize(("explored", "measured", "rises"), [(0.0, 0.5, True), (0.5, 0.0, False)])
def test_the_multiplier_follows_the_policy_without_exploration(monkeypatch: pytest.MonkeyPatch, explored: float,
                                                               measured: float, rises: bool) -> None:
    found, _ = trained(monkeypatch, [Measured(0.0, 1.0, explored)] * 3, [Measured(0.0, 1.0, measured)] * 3)
    first, *later = [row.multiplier for row in found.history]
    assert first == 10.0 and [one > first for one in later] == [rises, rises]


def test_the_best_weights_are_the_best_measured_and_every_measurement_is_of_the_same_training_episodes(
        monkeypatch: pytest.MonkeyPatch) -> None:
    explored = [Measured(0.0, cost, 0.0) for cost in (1.0, 3.0, 0.5)]
    measured = [Measured(0.0, cost, 0.0) for cost in (3.0, 1.0, 2.0)]
    found, asked = trained(monkeypatch, explored, measured)
    assert (found.policy.weights[0] == 2.0).all()  # of the second round
    assert asked == [(True, "train", 17, VALIDATION_SEED + SEED)] * 3
    assert [(row.cost, row.explored_cost) for row in found.history] == [(3.0, 1.0), (1.0, 3.0), (2.0, 0.5)]


def test_a_checkpoint_is_written_again_after_another_run_has_taken_the_folder_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run of the same work that ends does so, before a checkpoint or while it is written."""
    path, state, written = tmp_path / "own" / "policy.npz", {"a": torch.ones(2)}, np.savez

    def taken_away(*arguments: Any, **arrays: Any) -> None:
        written(*arguments, **arrays)
        shutil.rmtree(path.parent)

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", taken_away)
        training_run.write_checkpoint(path, state, {"digest": {}})
    assert not path.exists()
    training_run.write_checkpoint(path, state, {"digest": {}})
    stored = training_run.read_checkpoint(path, {})
    assert stored is not None and stored[0]["a"].tolist() == [1.0, 1.0]
    shutil.rmtree(path.parent)  # also before it is read
    assert training_run.read_checkpoint(path, {}) is None
