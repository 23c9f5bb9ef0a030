import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import optuna
import pytest

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import SupportMean
from models.adaptation.closed_form.combination import Mean
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import Pool, Prediction, Support
from models.adaptation.pool import tuning
from models.adaptation.pool.tuning import (
    DEFAULTS,
    Tuned,
    suggest_hierarchical,
    suggest_mean,
    suggest_neighbours,
    tune,
)
from models.adaptation.pool.validation import SHOTS, mean_over_cells, validate
from tests.models.adaptation.synthetic_pools import pool


@dataclass(frozen=True)
class Off:
    """The mean of the support, off by `bias`."""

    bias: float
    name: str = "off"

    def fit(self, pool: Pool, seed: int = 0) -> "OffFitted":
        return OffFitted(self, SupportMean().fit(pool))


@dataclass(frozen=True)
class OffFitted:
    settings: Off
    fitted: object

    def predict(self, support: Support) -> Prediction:
        found = self.fitted.predict(support)
        return Prediction(found.mean + self.settings.bias, np.zeros_like(found.mean))


def suggest_off(trial: optuna.trial.BaseTrial) -> Off:
    return Off(trial.suggest_float("bias", -2.0, 2.0))


def flat(workloads: int = 8) -> Pool:
    """Every workload takes the same under all configurations."""
    made = pool(workloads, 4)
    made.y[:] = made.y[:, :1]
    return made


def params(journal: Path) -> list[dict[str, float]]:
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    return [trial.params for trial in optuna.load_study(study_name="adaptation", storage=storage).trials]


def test_bad_defaults_are_replaced_by_what_is_better() -> None:
    found = tune(suggest_off, flat(), trials=8, defaults={"bias": 2.0})
    assert abs(found.settings["bias"]) < 1.0
    assert found.learner == Off(found.settings["bias"])
    assert found.error < found.default_error == pytest.approx(np.exp(2.0) - 1)
    assert found.trials == 8


def test_defaults_stay_where_nothing_is_better() -> None:
    found = tune(suggest_off, flat(), trials=8, defaults={"bias": 0.0})
    assert found.settings == {"bias": 0.0} and found.error == found.default_error


@pytest.mark.parametrize(("spread", "replaced"), [(0.5, False), (0.02, True)])
def test_defaults_stay_unless_the_best_trial_is_better_by_a_standard_error(
        monkeypatch: pytest.MonkeyPatch, spread: float, replaced: bool) -> None:
    """All trials but the defaults are better by 0.01 in the mean, by more in half of the workloads."""
    def errors(learner: Off, made: Pool, shots: tuple[int, ...], seed: int, on_fold: object) -> np.ndarray:
        gain = 0.01 + spread * np.where(np.arange(8) % 2, 1.0, -1.0)
        return np.tile(1.0 - gain * (learner.bias != 0.0), (len(shots), 1))

    monkeypatch.setattr(tuning, "validate", errors)
    found = tune(suggest_off, flat(), trials=4, defaults={"bias": 0.0})
    # standard errors of 8 differences: 0.19 and 0.0076
    assert (found.settings["bias"] != 0.0) == replaced
    assert found.error == pytest.approx(0.99 if replaced else 1.0)
    assert found.default_error == 1.0


def test_errors_are_those_of_validation_on_the_pool() -> None:
    made = pool(6, 5, missing=0.2)
    found = tune(suggest_hierarchical, made, trials=1, seed=4, shots=(1, 2))
    expected = np.mean(mean_over_cells(validate(Hierarchical(), made, (1, 2), seed=4).T))
    assert found == Tuned(Hierarchical(), {name: DEFAULTS[name] for name in ("lengthscale", "additive", "strength")},
                          pytest.approx(expected), pytest.approx(expected), 1)


@pytest.mark.parametrize(("suggest", "expected"), [
    (suggest_hierarchical, Hierarchical()),
    (suggest_neighbours, Neighbours()),
    (suggest_mean, Mean((Hierarchical(), Neighbours()), name="hierarchical_nearest")),
])
def test_defaults_are_those_of_the_learners(suggest: object, expected: object) -> None:
    assert suggest(optuna.trial.FixedTrial(dict(DEFAULTS))) == expected


def test_same_seed_gives_the_same_result() -> None:
    first, second, other = (tune(suggest_off, flat(), trials=5, seed=seed, defaults={"bias": 2.0})
                            for seed in (0, 0, 1))
    assert first == second != other


def test_journal_counts_the_trials_that_it_holds(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    first = tune(suggest_off, flat(), trials=3, journal=journal, defaults={"bias": 2.0})
    assert first.trials == 3 == len(params(journal))
    again = tune(suggest_off, flat(), trials=3, journal=journal, defaults={"bias": 2.0})
    assert again == first and len(params(journal)) == 3
    assert tune(suggest_off, flat(), trials=1, journal=journal, defaults={"bias": 2.0}) == first
    assert tune(suggest_off, flat(), trials=5, journal=journal, defaults={"bias": 2.0}).trials == 5


def test_study_that_was_ended_goes_on_to_the_result_of_one_that_was_not(tmp_path: Path) -> None:
    """Past the sampler's 10 random trials."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = tune(suggest_off, flat(), trials=13, journal=whole, defaults={"bias": 2.0})
    for trials in (1, 4, 11, 13):
        found = tune(suggest_off, flat(), trials=trials, journal=parts, defaults={"bias": 2.0})
    assert params(parts) == params(whole)
    assert found == expected
    assert len({one["bias"] for one in params(whole)}) == 13


def test_study_that_was_killed_in_a_trial_makes_that_trial_again(tmp_path: Path) -> None:
    def killed_in(number: int, journal: Path) -> None:
        calls = []

        def suggest_off(trial: optuna.trial.BaseTrial) -> Off:
            calls.append(trial)
            if len(calls) > number:
                raise KeyboardInterrupt
            return Off(trial.suggest_float("bias", -2.0, 2.0))
        suggest_off.__qualname__ = "suggest_off"
        with pytest.raises(KeyboardInterrupt):
            tune(suggest_off, flat(), trials=5, journal=journal, defaults={"bias": 2.0})

    expected = tune(suggest_off, flat(), trials=5, defaults={"bias": 2.0})
    for number in (0, 2):
        journal = tmp_path / f"{number}"
        killed_in(number, journal)
        assert tune(suggest_off, flat(), trials=5, journal=journal, defaults={"bias": 2.0}) == expected


def test_half_a_line_at_the_end_of_a_journal_is_no_obstacle(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    tune(suggest_off, flat(), trials=3, journal=journal, defaults={"bias": 2.0})
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-20])
    found = tune(suggest_off, flat(), trials=3, journal=journal, defaults={"bias": 2.0})
    assert found == tune(suggest_off, flat(), trials=3, defaults={"bias": 2.0})


def suggest_other(trial: optuna.trial.BaseTrial) -> Off:
    return Off(trial.suggest_float("offset", -2.0, 2.0))


@pytest.mark.parametrize("values", ["x", "distance", "y", "runs", "metrics", "noise"])
def test_journal_of_a_pool_of_the_same_shape_with_one_other_value_is_turned_down(tmp_path: Path, values: str) -> None:
    journal, made = tmp_path / "journal", pool(4, 4, metrics=1)
    tune(suggest_off, made, trials=1, journal=journal, defaults={"bias": 2.0})
    before = params(journal)
    if values == "noise":
        other = replace(made, noise=np.nextafter(made.noise, 1.0))
    else:
        array = getattr(made, values).copy()
        array.flat[-1] += 1
        other = replace(made, **{values: array})
    with pytest.raises(InputError, match="journal: expected one of the same pool"):
        tune(suggest_off, other, trials=1, journal=journal, defaults={"bias": 2.0})
    assert params(journal) == before


@pytest.mark.parametrize("change", ["pool", "seed", "shots", "learner", "defaults"])
def test_journal_of_another_study_is_turned_down(tmp_path: Path, change: str) -> None:
    journal = tmp_path / "journal"
    tune(suggest_off, flat(), trials=2, journal=journal, defaults={"bias": 2.0})
    before = params(journal)
    with pytest.raises(InputError, match=f"journal: expected one of the same pool.*{re.escape(str(journal))}"):
        tune(suggest_other if change == "learner" else suggest_off, flat(7 if change == "pool" else 8), trials=2,
             seed=1 if change == "seed" else 0, shots=(1,) if change == "shots" else SHOTS, journal=journal,
             defaults={"bias": 1.0 if change == "defaults" else 2.0})
    assert params(journal) == before


@pytest.mark.parametrize("workloads", [0, 1])
def test_pool_of_fewer_than_two_workloads_is_turned_down(workloads: int) -> None:
    with pytest.raises(InputError, match="pool: expected at least two workloads"):
        tune(suggest_off, flat().part(np.arange(workloads)), trials=1, defaults={"bias": 0.0})


def test_no_trial_at_all_is_turned_down() -> None:
    with pytest.raises(InputError, match="trials must be at least 1, got 0"):
        tune(suggest_off, flat(), trials=0)


def test_pool_without_a_workload_to_predict_is_turned_down() -> None:
    made = flat()
    made.y[:] = np.nan
    with pytest.raises(InputError, match="must"):
        tune(suggest_off, made, trials=2, defaults={"bias": 0.0})


def test_two_workloads_are_enough() -> None:
    assert tune(suggest_mean, pool(2, 4), trials=2).trials == 2


def test_a_trial_that_is_worse_on_its_first_folds_is_given_up_and_counts(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    found = tune(suggest_off, flat(), trials=14, journal=journal, defaults={"bias": 0.0})
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    trials = optuna.load_study(study_name="adaptation", storage=storage).trials
    pruned = [trial for trial in trials if trial.state is optuna.trial.TrialState.PRUNED]
    assert pruned and found.trials == len(trials) == 14
    for trial in pruned:
        assert 1 < len(trial.intermediate_values) < 5  # not before the second fold, and before the last
        assert abs(trial.params["bias"]) > abs(found.settings["bias"])
