"""The meta network: better than what it starts from, the same for the same seed, defined wherever there is little."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import SupportMean
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.learner import NONE, Support
from models.adaptation.networks.meta_network import FittedMetaNetwork, MetaNetwork, flash_sizeless
from models.adaptation.networks.sizeless import TimeSettings
from models.adaptation.pool.episodes import Cells, support_of
from tests.models.adaptation.synthetic_pools import constant, error, pool, random_support

FAST = MetaNetwork(steps=40, hidden=(32, 32))
# float32 networks behind float64 priors
ROUNDING = 1e-5
FLASH = flash_sizeless(TimeSettings(hidden=(32, 32), epochs=4, encoder="gru", learning_rate=1e-3))


def fitted(metrics: int = 0, settings: MetaNetwork = FAST) -> FittedMetaNetwork:
    found = settings.fit(pool(metrics=metrics), seed=1)
    assert isinstance(found, FittedMetaNetwork)
    return found


def test_it_learns_a_pool_better_than_the_support_mean_and_its_own_start() -> None:
    every = pool(44)
    trained, others = every.part(np.arange(24)), every.part(np.arange(24, 44))
    found, support = replace(FAST, steps=120).fit(trained), random_support(others, 3)
    ours = error(found.predict(support).mean, others)
    assert ours < 0.5 * error(SupportMean().fit(trained).predict(support).mean, others)
    assert isinstance(found, FittedMetaNetwork)
    assert ours < 0.8 * error(found.prior.predict(support).mean, others)


def test_the_same_seed_gives_the_same_result_and_leaves_the_global_state_alone() -> None:
    support = random_support(pool(), 2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = fitted().predict(support)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    again = fitted().predict(support)
    assert np.array_equal(first.mean, again.mean) and np.array_equal(first.variance, again.variance)
    other = FAST.fit(pool(), seed=2).predict(support)
    assert not np.array_equal(first.mean, other.mean)


def test_order_and_padding_of_the_runs_do_not_matter() -> None:
    found, support = fitted(metrics=2), random_support(pool(metrics=2), 3)
    turned = Support(support.at[:, ::-1].copy(), support.y[:, ::-1].copy(), support.metrics[:, ::-1].copy())
    nothing = np.full((len(support.at), 2), np.nan)
    padded = Support(np.column_stack([np.full_like(support.at[:, :2], NONE), support.at]),
                     np.column_stack([nothing, support.y]),
                     np.concatenate([np.full((len(support.at), 2, 2), np.nan), support.metrics], axis=1))
    mean = found.predict(support).mean
    np.testing.assert_allclose(found.predict(turned).mean, mean, atol=ROUNDING)
    np.testing.assert_allclose(found.predict(padded).mean, mean, atol=ROUNDING)


@pytest.mark.parametrize("settings", [FAST, FLASH], ids=["relative", "published"])
def test_predictions_are_finite_with_no_runs_one_run_identical_runs_and_many_runs(settings: MetaNetwork) -> None:
    made = pool(metrics=1, missing=0.2)
    found = settings.fit(made)
    at = np.full((4, 5), NONE)
    at[1, 2], at[2], at[3] = 0, 3, np.arange(5)
    support = Support(at, np.where(at == NONE, np.nan, 4.0), np.full((4, 5, 1), np.nan))
    said = found.predict(support)
    assert np.isfinite(said.mean).all() and np.isfinite(said.variance).all() and (said.variance > 0).all()
    without = found.predict(Support(at[:, :0], np.empty((4, 0)), np.empty((4, 0, 1))))
    np.testing.assert_allclose(without.mean[0], said.mean[0])


@pytest.mark.parametrize("settings", [FAST, FLASH], ids=["relative", "published"])
def test_constant_targets_are_defined(settings: MetaNetwork) -> None:
    made = constant()
    said = settings.fit(made).predict(random_support(made, 2))
    assert np.isfinite(said.mean).all() and (said.variance > 0).all()
    if settings is FAST:
        np.testing.assert_allclose(said.mean, 3.0, atol=0.05)


def test_the_correction_of_a_prior_starts_at_zero() -> None:
    made = pool()
    found = MetaNetwork(prior=Hierarchical(), steps=0).fit(made)
    support = random_support(made, 2)
    np.testing.assert_allclose(found.predict(support).mean, Hierarchical().fit(made).predict(support).mean,
                               atol=ROUNDING)


def test_variances_fit_the_errors_on_workloads_that_were_not_seen() -> None:
    every = pool(80)
    found, others = FAST.fit(every.part(np.arange(24))), every.part(np.arange(24, 80))
    for shots in (1, 3):
        said = found.predict(random_support(others, shots))
        ratio = float(np.mean((said.mean - others.y) ** 2) / said.variance.mean())
        assert 0.3 < ratio < 3  # 24 workloads give a variance to a factor of two or so


def test_metrics_that_tell_the_slope_help_at_one_run() -> None:
    every = pool(60, metrics=1)
    seen, others = every.part(np.arange(30)), every.part(np.arange(30, 60))
    support = random_support(others, 1)
    with_metrics, without = (replace(FAST, metrics=used, steps=80).fit(seen).predict(support)
                             for used in (True, False))
    assert error(with_metrics.mean, others) < 0.8 * error(without.mean, others)


def test_a_pool_that_is_too_small_is_refused() -> None:
    for settings in (FAST, FLASH):
        with pytest.raises(InputError, match="pool must have 4 workloads"):
            settings.fit(pool(3))


def test_names_that_are_not_known_are_refused() -> None:
    with pytest.raises(InputError, match="loss must be one of log, mape, got 'mse'"):
        MetaNetwork(loss="mse").fit(pool())
    with pytest.raises(InputError, match="encoder must be gru or attention, got 'lstm'"):
        MetaNetwork(encoder="lstm").fit(pool())


def test_four_workloads_are_enough_and_one_that_was_run_once_does_not_count() -> None:
    made = pool(5)
    made.y[4, 1:] = np.nan
    for settings in (FAST, FLASH):
        assert np.isfinite(settings.fit(made).predict(random_support(made, 2)).mean).all()
    made.y[3, 1:] = np.nan
    with pytest.raises(InputError, match="got 3"):
        FAST.fit(made)


def test_what_a_pool_does_not_teach_stays_the_priors() -> None:
    generator, made = np.random.default_rng(0), pool(40)
    every = replace(made, y=generator.normal(4.0, 2.0, (40, 1)) + 0.3 * generator.normal(size=made.y.shape))
    found, others = FAST.fit(every.part(np.arange(16))), every.part(np.arange(16, 40))
    support = random_support(others, 2)
    assert isinstance(found, FittedMetaNetwork)
    assert error(found.predict(support).mean, others) < 1.05 * error(found.prior.predict(support).mean, others)


def test_episodes_have_their_runs_in_the_pool_and_never_ask_for_them() -> None:
    made = pool(missing=0.5)
    cells = Cells.of(made, metrics=True)
    workloads = torch.arange(made.workloads).repeat(20)
    episodes = cells.draw(workloads, torch.Generator().manual_seed(0), 3)
    at, there = episodes.runs.at.numpy(), episodes.runs.is_run.numpy()
    rows = workloads.numpy()[:, None]
    assert np.isfinite(made.y[rows, at][there]).all()
    np.testing.assert_allclose(made.y[rows, at][there], episodes.runs.y.numpy()[there], rtol=1e-6)
    assert set(there.sum(axis=1)) <= {1, 2, 3}
    measured = (~np.isnan(made.y)).sum(axis=1)[workloads.numpy()]
    assert np.array_equal(episodes.asked.sum(dim=1).numpy() + there.sum(axis=1), measured)
    assert np.array_equal(support_of(made, episodes).is_run, there)
    for e in range(len(at)):
        assert not set(at[e][there[e]]) & set(episodes.queries[e][episodes.asked[e]].tolist())
    again = cells.draw(workloads, torch.Generator().manual_seed(0), 3)
    assert torch.equal(again.runs.at, episodes.runs.at) and torch.equal(again.asked, episodes.asked)
