"""The table of learners: every one is found by its name, the networks of the papers among them."""

import pytest

from feature_store.errors import InputError
from models.adaptation.learners import LEARNERS, learner_named
from models.adaptation.pool.selection import candidates_for, default_learner

# Names under which learners have always stood in reports, where they differ from those in the table.
REPORTED = {"flash": "flash_sizeless"}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_is_reported_under_the_name_it_is_asked_for(name: str) -> None:
    assert learner_named(name).make().name == REPORTED.get(name, name)


def test_whatever_is_chosen_on_a_pool_can_be_asked_for() -> None:
    chosen = {learner.name for learner in candidates_for(1000, metrics=True)}
    assert {name for name in chosen if not name.endswith("_without_metrics")} <= set(LEARNERS)
    assert LEARNERS["hierarchical_nearest"].make() == default_learner()


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="got 'sizless'; did you mean 'sizeless'"):
        learner_named("sizless")
