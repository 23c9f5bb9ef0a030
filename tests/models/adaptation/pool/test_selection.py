from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import BoostedRatios, SupportMean
from models.adaptation.closed_form.combination import Mean
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import Learner, Pool
from models.adaptation.networks.meta_network import MetaNetwork
from models.adaptation.pool import selection
from models.adaptation.pool.selection import (
    BOOSTED_WORKLOADS,
    NETWORK_WORKLOADS,
    candidates_for,
    choose_learner,
    default_learner,
)
from models.adaptation.pool.validation import mean_over_cells, validate
from tests.models.adaptation.synthetic_pools import error, pool, random_support

DEFAULT = "hierarchical_nearest"
UNTOLD = [f"{name}_without_metrics" for name in (DEFAULT, "hierarchical", "nearest")]


def names(learners: Sequence[Learner]) -> list[str]:
    return [learner.name for learner in learners]


def flat(workloads: int = 8) -> Pool:
    """Every workload takes the same under all configurations: the mean of its support is right."""
    made = pool(workloads, 4)
    made.y[:] = made.y[:, :1]
    return made


def candidates(*found: str) -> list[SupportMean]:
    return [SupportMean(name) for name in found]


def with_errors(monkeypatch: pytest.MonkeyPatch, errors: dict[str, list[float]]) -> None:
    """Of each candidate by name, by workload."""
    monkeypatch.setattr(selection, "validate", lambda learner, made, shots, seed: np.tile(errors[learner.name],
                                                                                          (len(shots), 1)))


def test_candidates_depend_on_the_pool() -> None:
    small = [DEFAULT, "hierarchical", "nearest"]
    assert names(candidates_for(BOOSTED_WORKLOADS - 1, metrics=False)) == small
    assert names(candidates_for(2, metrics=True)) == small + UNTOLD
    assert names(candidates_for(BOOSTED_WORKLOADS, metrics=False)) == [*small, "boosted_ratios"]
    assert names(candidates_for(NETWORK_WORKLOADS, metrics=False)) == [*small, "boosted_ratios"]
    assert names(candidates_for(NETWORK_WORKLOADS - 1, metrics=True)) == [*small, *UNTOLD, "boosted_ratios"]
    large = candidates_for(NETWORK_WORKLOADS, metrics=True)
    assert names(large) == [*small, *UNTOLD, "boosted_ratios", "meta_network"]
    assert large[-2:] == (BoostedRatios(), MetaNetwork(prior=Hierarchical()))


def test_first_candidate_is_what_is_recommended_with() -> None:
    assert candidates_for(14, metrics=True)[0] == default_learner() == Mean((Hierarchical(), Neighbours()), DEFAULT)


@pytest.mark.parametrize("name", UNTOLD)
def test_candidates_without_metrics_do_not_look_at_them(name: str) -> None:
    made = pool(8, 6, metrics=2)
    garbled = Pool(made.x, made.distance, made.y, made.runs, 100 * np.random.default_rng(1).normal(
        size=made.metrics.shape), made.noise)
    learner = {one.name: one for one in candidates_for(8, metrics=True)}[name]
    first, second = (learner.fit(one).predict(random_support(one, 2)) for one in (made, garbled))
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.variance, second.variance)


@pytest.mark.parametrize(("spread", "chosen"), [(0.5, "default"), (0.02, "better")])
def test_default_stays_unless_another_is_better_by_a_standard_error(
        monkeypatch: pytest.MonkeyPatch, spread: float, chosen: str) -> None:
    """Of 8 paired differences of mean 0.01: 0.19 and 0.0076."""
    gain = 0.01 + spread * np.where(np.arange(8) % 2, 1.0, -1.0)
    with_errors(monkeypatch, {"default": [1.0] * 8, "worse": [1.5] * 8, "better": list(1.0 - gain)})
    found = choose_learner(flat(8), candidates("default", "worse", "better"))
    assert (found.name, found.learner) == (chosen, SupportMean(chosen))
    assert ("is more than one standard error" in found.reason) == (chosen == "better")
    assert list(found.errors) == ["default", "worse", "better"]
    assert found.errors["better"].mape == pytest.approx(0.99)
    assert found.errors["better"].standard_error == pytest.approx(gain.std(ddof=1) / np.sqrt(8))


def test_equal_candidates_leave_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    with_errors(monkeypatch, {"default": [0.2, 0.3], "same": [0.2, 0.3]})
    found = choose_learner(flat(2), candidates("default", "same"))
    assert found.name == "default" and "no gain" in found.reason


def test_workloads_that_cannot_be_predicted_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with_errors(monkeypatch, {"default": [0.2, np.nan, 0.4], "better": [0.1, np.nan, 0.3]})
    found = choose_learner(flat(3), candidates("default", "better"))
    assert found.name == "better" and found.errors["default"].mape == pytest.approx(0.3)


def test_one_workload_that_can_be_predicted_is_not_enough_to_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    with_errors(monkeypatch, {"default": [0.9, np.nan], "better": [0.1, np.nan]})
    assert choose_learner(flat(2), candidates("default", "better")).name == "default"


def test_errors_are_those_of_validation_on_the_pool() -> None:
    made = pool(8, 5, missing=0.2)
    found = choose_learner(made, [Hierarchical(), Neighbours()], shots=(1, 2), seed=4)
    for learner in (Hierarchical(), Neighbours()):
        expected = mean_over_cells(validate(learner, made, (1, 2), seed=4).T)
        assert found.errors[learner.name].mape == pytest.approx(expected.mean())
        assert found.errors[learner.name].standard_error == pytest.approx(expected.std(ddof=1) / np.sqrt(8))


def test_bad_default_is_replaced_by_what_predicts_unseen_workloads_better() -> None:
    everything = pool(40, 10, metrics=1)
    made, new = everything.part(np.arange(20)), everything.part(np.arange(20, 40))
    found = choose_learner(made, [SupportMean(), Hierarchical()])
    assert found.name == "hierarchical"
    support = random_support(new, 2)
    assert error(found.learner.fit(made).predict(support).mean, new) < error(
        SupportMean().fit(made).predict(support).mean, new) / 2


def test_metrics_that_are_noise_are_not_trusted() -> None:
    """Where the default uses them and loses by it, a candidate without them is chosen."""
    made = pool(30, 10, metrics=3)
    made.metrics[:] = 20 * np.random.default_rng(2).normal(size=made.metrics.shape)
    found = choose_learner(made)
    assert found.errors[UNTOLD[2]].mape < found.errors["nearest"].mape
    assert found.errors[found.name].mape <= found.errors[DEFAULT].mape


def test_same_seed_gives_the_same_choice() -> None:
    made = pool(10, 6, metrics=1)
    assert choose_learner(made, seed=3) == choose_learner(made, seed=3)


@pytest.mark.parametrize("workloads", [0, 1])
def test_pool_too_small_to_hold_a_workload_out_keeps_the_default_and_says_so(workloads: int) -> None:
    found = choose_learner(pool(8, 6).part(np.arange(workloads)))
    assert found.name == DEFAULT and found.errors == {}
    assert f"too few workloads to choose on ({workloads})" in found.reason


def test_pool_without_a_run_keeps_the_default_and_says_so() -> None:
    made = flat(4)
    made.y[:] = np.nan
    found = choose_learner(made)
    assert found.name == DEFAULT and found.errors == {}
    assert "no workload of the pool can be held out" in found.reason
    assert f"{DEFAULT} was not tried: pool must have at least one measured run" in found.reason


def test_candidate_that_does_not_take_the_pool_is_named() -> None:
    found = choose_learner(pool(3, 6), [SupportMean(), MetaNetwork()])
    assert found.name == "support_mean" and list(found.errors) == ["support_mean"]
    assert "meta_network was not tried: pool must" in found.reason


@pytest.mark.parametrize("bad", [[], ["one", "one"]])
def test_candidates_must_be_named_apart(bad: list[str]) -> None:
    with pytest.raises(InputError, match="candidates: expected at least one, with distinct names"):
        choose_learner(flat(), candidates(*bad))


def test_large_pool_with_metrics_tries_every_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a network of few steps: that it is tried is asked here, not how well it learns."""
    monkeypatch.setattr(selection, "MetaNetwork", partial(MetaNetwork, steps=20))
    found = choose_learner(pool(NETWORK_WORKLOADS, 8, metrics=1), shots=(1,))
    assert list(found.errors) == names(candidates_for(NETWORK_WORKLOADS, metrics=True))
