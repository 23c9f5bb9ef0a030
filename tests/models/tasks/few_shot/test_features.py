"""What a workload is judged by never reaches what it is trained on."""

import dataclasses
from functools import cache
from typing import get_args

import numpy as np
import pytest

from feature_store.errors import InputError
from feature_store.measurements import measurements_of
from models.adaptation.encoding import Table, table_of
from models.tasks.few_shot.features import OWN_PREFIX, Adapted, Knowledge, adapt, learn_pool, pool_rows
from models.tasks.few_shot.model_inputs import inputs_of
from models.tasks.few_shot.settings import Bases, FewShot
from tests.models.adaptation.simulation import frame, mapping

TARGET = "log_runtime_s"
OWN = "w00"
UNMEASURED = ((1, "b"), (8, "a"), (16, "b"))  # configurations that OWN has no run of
SETTINGS = FewShot(pool=tuple(f"w{number:02d}" for number in range(1, 9)), runs=2, embedding=3)


def table() -> Table:
    made = frame(9)
    unmeasured = [pair in UNMEASURED for pair in zip(made["nodes"], made["type"], strict=True)]
    gone = (made["app"] == OWN) & np.array(unmeasured)
    return table_of(measurements_of(made[~gone], mapping(), "test"))


@cache
def knowledge() -> Knowledge:
    made = table()
    return learn_pool(made, inputs_of(mapping(), made.configurations), SETTINGS, 0)


def adapted(bases: str = "sequential", runs: int = 2, known: Knowledge | None = None) -> Adapted:
    return adapt(known or knowledge(), OWN, SETTINGS.model_copy(update={"bases": bases, "runs": runs}), TARGET, 0)


def support_of(made: Adapted) -> set[int]:
    return {entry["index"] for entry in made.facts["support"]}


def measured() -> set[int]:
    own = knowledge().table
    return set(np.flatnonzero(~np.isnan(own.pool.y[own.rows([OWN])[0]])).tolist())


def with_targets_of_the_others(made: Adapted, change: float) -> Knowledge:
    """The same knowledge of the pool, with other targets where OWN was measured and is judged."""
    known = knowledge()
    y = known.table.pool.y.copy()
    own = int(known.table.rows([OWN])[0])
    y[own, sorted(measured() - support_of(made))] += change
    return dataclasses.replace(known, table=dataclasses.replace(
        known.table, pool=dataclasses.replace(known.table.pool, y=y)))


@pytest.mark.parametrize("bases", get_args(Bases))
@pytest.mark.parametrize("runs", [1, 2, 4])
def test_test_rows_are_what_was_measured_and_is_not_in_the_support(bases: str, runs: int) -> None:
    made, own = adapted(bases, runs), knowledge().table
    support = support_of(made)
    assert len(support) == runs and support < measured() and len(measured()) == 10 - len(UNMEASURED)
    judged = sorted(measured() - support)
    n = len(knowledge().inputs)
    expected = np.column_stack([knowledge().values[judged], np.tile(made.facts["embedding"], (len(judged), 1)),
                                own.pool.y[own.rows([OWN])[0], judged]])
    np.testing.assert_array_equal(made.test.to_numpy(), expected)
    given = {tuple(knowledge().values[i]) for i in support}
    assert not given & {tuple(row) for row in made.test.to_numpy()[:, :n]}
    assert list(made.test.columns) == list(made.train.columns) == [*knowledge().columns(SETTINGS), TARGET]


@pytest.mark.parametrize("bases", get_args(Bases))
def test_the_targets_that_judge_change_nothing_but_the_judgement(bases: str) -> None:
    """Ten times as long a run time in every test row: support, training rows, embedding and intervals stay."""
    before = adapted(bases)
    after = adapted(bases, known=with_targets_of_the_others(before, np.log(10)))
    assert support_of(after) == support_of(before)
    np.testing.assert_array_equal(after.train, before.train)
    assert after.embedding_ranges == before.embedding_ranges
    names = [f"{OWN_PREFIX}{name}" for name in ("mean", "deviation", "support", "runs")]
    assert after.options[names].equals(before.options[names])
    judging = {"closed_form_mape", "support_mean_mape"}
    assert {k: v for k, v in after.facts.items() if k not in judging} == {
        k: v for k, v in before.facts.items() if k not in judging}
    np.testing.assert_allclose(after.test[TARGET] - before.test[TARGET], np.log(10))
    assert all(after.facts[name] != before.facts[name] for name in judging)


def test_the_workload_is_no_part_of_the_pool_that_the_base_learner_starts_from() -> None:
    made = adapted()
    assert knowledge().pool.workloads == len(SETTINGS.pool)
    same = pool_rows(knowledge(), SETTINGS, 0)
    np.testing.assert_array_equal(pool_rows(with_targets_of_the_others(made, 3.0), SETTINGS, 0), same)
    assert np.isfinite(same).all() and same.shape[1] == made.train.shape[1]


def test_the_mean_of_the_support_is_the_mean_of_the_support() -> None:
    made, own = adapted(), knowledge().table
    y = own.pool.y[own.rows([OWN])[0]]
    support, judged = sorted(support_of(made)), sorted(measured() - support_of(made))
    assert made.facts["support_mean"] == pytest.approx(y[support].mean())
    expected = np.mean(np.abs(np.exp(y[support].mean() - y[judged]) - 1))
    assert made.facts["support_mean_mape"] == pytest.approx(expected)


def test_options_say_what_was_measured_and_what_was_given() -> None:
    made = adapted()
    flags = made.options[f"{OWN_PREFIX}support"].to_numpy(dtype=bool)
    assert set(np.flatnonzero(flags)) == support_of(made)
    assert set(np.flatnonzero(~np.isnan(made.options[f"{OWN_PREFIX}measured"]))) == measured()


@pytest.mark.parametrize("runs", [7, 8])
def test_a_workload_with_nothing_left_to_judge_it_by_is_refused(runs: int) -> None:
    with pytest.raises(InputError, match=f"more than {runs} measured configurations, .*, got 7"):
        adapted(runs=runs)
