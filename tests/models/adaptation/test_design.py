from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from models.adaptation.closed_form.baselines import SupportMean
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.design import FEWEST, FOLDS, Design
from models.adaptation.learner import NONE, Pool, Prediction, Support, supports
from models.adaptation.pool.validation import absolute_percentage_errors, folds_of, mean_over_cells
from tests.models.adaptation.synthetic_pools import pool

NOTHING = Support(np.empty((1, 0), dtype=np.int64), np.empty((1, 0)), np.empty((1, 0, 0)))


def measured(*cells: tuple[int, float]) -> Support:
    at, y = np.array([[cell[0] for cell in cells]]), np.array([[cell[1] for cell in cells]])
    return Support(at.astype(np.int64), y, np.empty((*at.shape, 0)))


def with_y(made: Pool, y: np.ndarray) -> Pool:
    return replace(made, y=y, runs=(~np.isnan(y)).astype(np.int64))


def greedy_deviation(made: Pool, count: int, candidates: list[int]) -> list[int]:
    """What leaves the smallest mean deviation, by the model's own predictions."""
    fitted, chosen = Hierarchical().fit(made), []
    for _ in range(count):
        left = {}
        for c in candidates:
            if c not in chosen:
                at = np.array([[*chosen, c]])
                nothing = np.full((*at.shape, made.metrics.shape[-1]), np.nan)
                prediction = fitted.predict(Support(at, np.full(at.shape, 4.0), nothing))
                left[c] = np.sqrt(prediction.variance).mean()
        chosen.append(min(left, key=left.__getitem__))
    return chosen


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("metrics", [0, 2])
def test_bases_by_the_model_alone_are_those_of_a_greedy_search(seed: int, metrics: int) -> None:
    made = pool(8, 9, seed, missing=0.2, metrics=metrics)
    found = Design(made, SupportMean(), model_share=1.0).base(4)
    assert found.tolist() == greedy_deviation(made, 4, list(range(9)))


def test_bases_by_the_model_alone_are_of_the_candidates() -> None:
    made, candidates = pool(8, 9), [1, 2, 5, 6]
    found = Design(made, SupportMean(), model_share=1.0).base(3, np.array(candidates))
    assert found.tolist() == greedy_deviation(made, 3, candidates)


def mean_deviation(made: Pool, at: tuple[int, ...]) -> float:
    nothing = np.full((1, len(at), made.metrics.shape[-1]), np.nan)
    support = Support(np.array([at]), np.full((1, len(at)), 4.0), nothing)
    return float(np.sqrt(Hierarchical().fit(made).predict(support).variance).mean())


@pytest.mark.parametrize("seed", range(4))
def test_together_no_exchange_of_one_is_better_and_it_is_never_worse_than_the_greedy_search(seed: int) -> None:
    made = pool(8, 9, seed, missing=0.2)
    design = Design(made, SupportMean(), model_share=1.0)
    found = tuple(design.together(3).tolist())
    assert len(set(found)) == 3
    own = mean_deviation(made, found)
    assert own <= mean_deviation(made, tuple(design.base(3).tolist())) + 1e-12
    for i in range(3):
        others = [at for at in found if at != found[i]]
        assert all(own <= mean_deviation(made, (*others, c)) + 1e-12 for c in range(9) if c not in others)


def test_together_takes_candidates_alone_and_no_more_than_there_are() -> None:
    made = pool(8, 9)
    design = Design(made, SupportMean())
    assert set(design.together(2, np.array([1, 5, 6]))) <= {1, 5, 6}
    assert sorted(design.together(4, np.array([1, 5]))) == [1, 5]
    assert design.together(1).tolist() == design.base(1).tolist()


def greedy_errors(made: Pool, count: int, seed: int = 0) -> list[int]:
    """What held-out workloads are predicted best with, one candidate and one workload at a time."""
    folds, chosen = folds_of(SupportMean(), made, FOLDS, seed), []
    configurations = made.y.shape[1]
    for _ in range(count):
        errors = np.full(made.y.shape, np.nan)
        for fold in folds:
            for row in fold.held_out:
                for c in range(configurations):
                    at = np.array([[*chosen, c]])
                    if np.isnan(made.y[row, at[0]]).any():
                        continue
                    prediction = fold.fitted.predict(supports(made, np.array([row]), at))
                    errors[row, c] = np.nanmean(absolute_percentage_errors(made, np.array([row]), at, prediction))
        score = mean_over_cells((errors - mean_over_cells(errors)[:, None]).T)
        score[chosen] = np.inf
        chosen.append(int(score.argmin()))
    return chosen


@pytest.mark.parametrize("seed", range(3))
def test_bases_by_the_pool_alone_are_those_of_held_out_workloads(seed: int) -> None:
    """Also from what it has kept of an earlier call."""
    made = pool(12, 6, seed, missing=0.1)
    design = Design(made, SupportMean(), model_share=0.0, seed=seed)
    expected = greedy_errors(made, 3, seed)
    for count in (1, 3, 2):
        assert design.base(count).tolist() == expected[:count]


def test_next_after_the_first_bases_is_the_next_base_where_all_workloads_count_alike() -> None:
    made = pool(12, 6, 1)
    design = Design(made, SupportMean(), similar=0.0)
    first = design.base(3)
    assert design.following(NOTHING) == first[0]
    assert design.following(measured((first[0], 4.0))) == first[1]
    # also where they were measured in another order
    assert design.following(measured((first[1], 1.0), (NONE, 0.0), (first[0], 4.0))) == first[2]


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_bases_are_distinct_and_of_the_candidates(share: float) -> None:
    design = Design(pool(8, 7, missing=0.3), SupportMean(), model_share=share)
    candidates = np.array([6, 1, 4])
    found = design.base(3, candidates)
    assert sorted(found) == [1, 4, 6]
    assert design.base(10, candidates).tolist() == found.tolist()  # no more than there are
    assert len(design.base(10)) == 7
    assert design.base(0).shape == (0,)
    assert design.base(2, np.array([], dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_next_is_neither_taken_nor_forbidden(share: float) -> None:
    made = pool(8, 7, missing=0.3)
    design = Design(made, SupportMean(), model_share=share)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        taken, allowed = rng.permutation(7)[:2], rng.permutation(7)[:4]
        found = design.following(measured(*((int(at), 4.0) for at in taken)), allowed)
        assert found in set(allowed) - set(taken)


def test_next_is_none_where_no_candidate_is_left() -> None:
    design = Design(pool(6, 4), SupportMean())
    assert design.following(measured((1, 4.0), (3, 4.0)), np.array([3, 1])) == NONE
    assert design.following(measured(*((c, 4.0) for c in range(4)))) == NONE
    assert design.following(NOTHING, np.array([], dtype=np.int64)) == NONE


def one_that_tells(seed: int, informative: int) -> Pool:
    """Each workload's level is measured exactly under one configuration and under none of the others."""
    rng = np.random.default_rng(seed)
    made = pool(30, 6, seed)
    level = rng.normal(4, 1, (30, 1))
    y = level + rng.normal(0, 0.3, (30, 6))
    y[:, informative] = level[:, 0]
    return replace(with_y(made, y), noise=float("nan"))


@pytest.mark.parametrize("informative", [0, 2, 5])
@pytest.mark.parametrize("share", [0.0, 0.7])
def test_configuration_that_tells_of_all_others_is_chosen_among_noise(informative: int, share: float) -> None:
    assert Design(one_that_tells(3, informative), Hierarchical(), model_share=share).base(1).tolist() == [informative]


def two_families() -> Pool:
    """Low workloads differ under configurations 1 and 2, high ones under 3 and 4, alike within each pair."""
    rng = np.random.default_rng(0)
    made = pool(24, 5)
    low = np.arange(24) < 12
    own = rng.normal(0, 0.8, 24)
    y = np.where(low, 2.0, 6.0)[:, None] + 0.01 * rng.normal(size=(24, 5))
    y[:, 1:3] += np.where(low, own, 0.0)[:, None]
    y[:, 3:5] += np.where(low, 0.0, own)[:, None]
    return with_y(made, y)


@pytest.mark.parametrize(("y", "pair"), [(2.0, {1, 2}), (6.0, {3, 4})])
def test_next_depends_on_what_was_measured_where_similar_workloads_count(y: float, pair: set[int]) -> None:
    design = Design(two_families(), Neighbours(), model_share=0.0, similar=1.0)
    assert design.following(measured((0, y))) in pair


def test_next_does_not_depend_on_what_was_measured_where_all_count_alike() -> None:
    design = Design(two_families(), Neighbours(), model_share=0.0, similar=0.0)
    assert len({design.following(measured((0, y))) for y in (-3.0, 2.0, 6.0, 20.0)}) == 1


@cache
def sparse() -> Pool:
    """Fewer than FEWEST workloads measured configuration 3."""
    made = pool(12, 7, 5)
    y = made.y.copy()
    y[FEWEST - 1:, 3] = np.nan
    return with_y(made, y)


def test_candidates_that_the_pool_hardly_knows_are_judged_by_the_model() -> None:
    made = sparse()
    design = Design(made, SupportMean(), model_share=0.0)
    assert design.following(NOTHING, np.array([3])) == 3
    unknown = with_y(made, np.where(np.arange(7) < 4, made.y, np.nan))
    design = Design(unknown, SupportMean(), model_share=0.0)
    by_model = Design(unknown, SupportMean(), model_share=1.0)
    candidates = np.array([4, 5, 6])
    assert design.base(3, candidates).tolist() == by_model.base(3, candidates).tolist()


class Jagged:
    """Predicts perfectly after some configurations, and badly after others."""

    name = "jagged"

    def __init__(self, y: np.ndarray, good: list[int]) -> None:
        self.y, self.good = y, good

    def fit(self, pool: Pool, seed: int = 0) -> "Jagged":
        return self

    def predict(self, support: Support) -> Prediction:
        good = np.isin(support.at, self.good).any(axis=1)[:, None]
        shape = (len(support.at), self.y.shape[1])
        return Prediction(np.full(shape, np.nanmean(self.y)) + np.where(good, 0.0, 5.0), np.zeros(shape))


def test_configurations_that_may_not_be_chosen_do_not_count_against_unknown_candidates() -> None:
    """Of candidates that the pool predicts alike with, and one that it does not know, the model's best is taken."""
    made = pool(8, 7)
    best = int(Design(made, SupportMean(), model_share=1.0).base(1)[0])
    others = [c for c in range(7) if c != best][:2]
    y = np.full((8, 7), 4.0)
    y[:, best] = np.nan
    made, learner = with_y(made, y), Jagged(y, others)
    candidates = np.array([*others, best])
    assert Design(made, learner, model_share=1.0).base(1, candidates).tolist() == [best]
    assert Design(made, learner, model_share=0.7).base(1, candidates).tolist() == [best]


def test_pool_of_one_workload_is_designed_for_by_the_model() -> None:
    made = pool(1, 5)
    assert Design(made, SupportMean()).base(3).tolist() == Design(made, SupportMean(), model_share=1.0).base(3).tolist()


def test_same_seed_gives_the_same_bases() -> None:
    made = pool(20, 8, missing=0.2)
    first, second = (Design(made, Neighbours(), seed=3).base(4).tolist() for _ in range(2))
    assert first == second


def test_pool_is_not_changed() -> None:
    made = pool(8, 5, missing=0.2)
    before = made.y.copy()
    design = Design(made, SupportMean())
    design.base(3)
    design.following(measured((1, 4.0)))
    np.testing.assert_array_equal(made.y, before)
