"""A model that obeys shows nothing on live rows; one that does not is named with the property and the amount."""

import numpy as np

from models.monitoring.live_pairs import LivePairs, live_pairs
from models.verification.language.properties import Condition, Monotonicity, OutputRange
from models.verification.language.specification import Specification
from tests.models.export.test_row_errors import doubles_the_first_and_adds_the_second

MODEL = doubles_the_first_and_adds_the_second()
ROWS = np.random.default_rng(0).random((50, 2))


def claimed(*properties: Monotonicity | OutputRange, upper: float = 1.0) -> Specification:
    return Specification(("a", "b"), np.zeros(2), np.array([upper, 1.0]), properties, output_names=("latency_ms",),
                         units={"latency_ms": "ms"})


def test_a_model_that_obeys_breaks_nothing() -> None:
    found = live_pairs(MODEL, claimed(Monotonicity((0, 1), "increasing"), OutputRange(0, 0.0, 3.0)), ROWS)
    assert found.broken == () and found.rows == 50 and 80 <= found.pairs <= 100


def test_a_broken_order_and_a_broken_range_are_named_the_worst_first() -> None:
    found = live_pairs(MODEL, claimed(Monotonicity((1,), "decreasing"), OutputRange(0, maximum=1.0)), ROWS)
    assert len(found.broken) == 2
    assert found.broken[0].startswith("latency_ms is at most 1: missed by 1.") and found.broken[0].endswith(" ms")
    assert found.broken[1].startswith("latency_ms is decreasing in b, with the other inputs equal: missed by 0.")


def test_rows_outside_of_the_proved_box_or_missing_are_not_asked() -> None:
    rule = OutputRange(0, maximum=1.5)
    assert live_pairs(MODEL, claimed(rule), ROWS).broken
    inside = live_pairs(MODEL, claimed(rule, upper=0.2), ROWS)
    assert not inside.broken and inside.rows == int((ROWS[:, 0] <= np.float32(0.2)).sum())
    assert live_pairs(MODEL, claimed(rule), np.full((5, 2), np.nan)) == LivePairs()


def test_a_condition_that_live_rows_do_not_meet_breaks_nothing() -> None:
    rule = Monotonicity((1,), "decreasing", when=(Condition(0, 2.0, 3.0),))
    assert not live_pairs(MODEL, claimed(rule), ROWS).broken
    rule = Monotonicity((1,), "decreasing", when=(Condition(0, 0.0, 1.0),))
    assert live_pairs(MODEL, claimed(rule), ROWS).broken
