"""Sizeless and its tuning to a new workload."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from models.adaptation.closed_form.baselines import SupportMean
from models.adaptation.learner import NONE, Support, supports
from models.adaptation.networks.sizeless import Sizeless, TimeSettings, Transfer, Tuning, percentage_error
from tests.models.adaptation.synthetic_pools import constant, error, pool, random_support

FAST = TimeSettings(hidden=(32, 32, 32), epochs=40, batch=16)


def test_it_learns_a_pool_better_than_the_support_mean() -> None:
    every = pool(80)
    seen, others = every.part(np.arange(50)), every.part(np.arange(50, 80))
    support = random_support(others, 3)
    found = Sizeless(replace(FAST, epochs=150, learning_rate=3e-3)).fit(seen).predict(support)
    assert error(found.mean, others) < 0.8 * error(SupportMean().fit(seen).predict(support).mean, others)


def test_the_same_seed_gives_the_same_result() -> None:
    support = random_support(pool(), 2)
    first, again, other = (Sizeless(FAST).fit(pool(), seed).predict(support).mean for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_the_runs_stand_in_their_order_wherever_the_padding_is() -> None:
    made = pool()
    support = random_support(made, 2)
    at = np.column_stack([support.at[:, 0], np.full(len(support.at), NONE), support.at[:, 1]])
    for learner in (Sizeless(FAST), Transfer(FAST)):
        found = learner.fit(made)
        np.testing.assert_allclose(found.predict(supports(made, np.arange(made.workloads), at)).mean,
                                   found.predict(support).mean, atol=1e-5)


def test_runs_beyond_the_slots_are_not_looked_at() -> None:
    made = pool()
    found, five = Sizeless(FAST).fit(made), random_support(made, 5)
    three = Support(five.at[:, :3], five.y[:, :3], five.metrics[:, :3])
    np.testing.assert_allclose(found.predict(five).mean, found.predict(three).mean, atol=1e-6)


@pytest.mark.parametrize("learner", [Sizeless(FAST), Transfer(FAST)], ids=["sizeless", "transfer"])
def test_predictions_are_finite_with_little(learner: Sizeless | Transfer) -> None:
    made = pool(missing=0.3, metrics=2)
    at = np.full((3, 4), NONE)
    at[1, 3], at[2] = 1, 2
    said = learner.fit(made).predict(Support(at, np.where(at == NONE, np.nan, 4.0), np.full((3, 4, 2), np.nan)))
    assert np.isfinite(said.mean).all() and np.isfinite(said.variance).all() and (said.variance > 0).all()
    said = learner.fit(constant()).predict(random_support(constant(), 2))
    assert np.isfinite(said.mean).all() and (said.variance > 0).all()


def test_tuning_in_no_steps_is_the_plain_network_and_in_some_lowers_the_error_on_the_runs() -> None:
    made = pool(40)
    seen, others = made.part(np.arange(20)), made.part(np.arange(20, 40))
    far = replace(others, y=others.y + 1.0)  # longer than any of the pool
    support = random_support(far, 3)
    plain = Sizeless(FAST).fit(seen)
    np.testing.assert_allclose(replace(plain, tuning=Tuning(0, 1e-3, 2)).predict(support).mean,
                               plain.predict(support).mean, atol=1e-5)
    tuned = replace(plain, tuning=Tuning(50, 1e-2, 2)).predict(support).mean
    before, after = (np.abs(np.take_along_axis(mean, support.at, 1) - support.y).mean()
                     for mean in (plain.predict(support).mean, tuned))
    assert after < 0.8 * before


def test_tuning_a_workload_is_the_plain_descent_of_its_own_copy() -> None:
    made = pool()
    plain = Sizeless(FAST).fit(made)
    support = random_support(made, 1)
    found = replace(plain, tuning=Tuning(3, 1e-2, 1)).predict(support).mean
    network, x, runs = plain.network, plain.cells.x, plain.cells.runs(support)
    workload = network.workload(x, runs)
    with torch.no_grad():
        hidden = network.base[:-1](network.rows(x[None], workload))
    for e in (0, 5):
        weight, bias = (part.clone().requires_grad_(True) for part in network.base[-1].parameters())
        for _ in range(3):
            said = hidden[e, runs.at[e]] @ weight.T + bias
            loss = percentage_error(said[:, 0], runs.y[e].exp() / network.unit, runs.is_run[e]) / 100
            slopes = torch.autograd.grad(loss, [weight, bias])
            weight, bias = ((part - 1e-2 * slope).detach().requires_grad_(True)
                            for part, slope in zip((weight, bias), slopes, strict=True))
        expected = network.log_times((hidden[e] @ weight.T + bias)[:, 0]).detach().numpy()
        np.testing.assert_allclose(found[e], expected, atol=1e-4)


def test_the_percentage_error_is_that_of_what_is_asked_for() -> None:
    said, times = torch.tensor([[2.0, 1.0, 9.0]]), torch.tensor([[1.0, 2.0, 0.0]])
    assert float(percentage_error(said, times, torch.tensor([[True, True, False]]))) == pytest.approx(75)
    assert float(percentage_error(said, times, torch.zeros(1, 3, dtype=torch.bool))) == 0
