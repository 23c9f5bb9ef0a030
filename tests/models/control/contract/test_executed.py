"""What a closed loop's guarantee may rest on: properties as they hold of what is executed."""

import math

import numpy as np
import pytest

from models.control.contract.guarantee import executed
from models.verification.checker.chain import read_chain
from models.verification.checker.rounding import chain_error
from tests.models.verification.onnx_files import dense_model

SPECIFICATION = {
    "features": ["now", "latency"], "outputs": ["target"], "box": {"now": [0.0, 64.0], "latency": [1.0, 1000.0]},
    "tolerance": {"target": 0.25},
    "properties": [
        {"order": {"upper": "now", "lower": "target", "factor": 2.0, "margin": -0.01}},
        {"range": {"output": "target", "minimum": 0.0, "maximum": 8.0, "when": {"now": [0, 1]}}},
        {"range": {"output": "target", "maximum": 9.0}},
        {"monotone": {"features": ["latency"], "direction": "increasing", "output": "target"}},
        {"robust": {"radius": {"now": 1.0}, "change": 1.0, "output": "target", "points": [[1.0, 1.0]]}}]}


def cancelling(large: float) -> bytes:
    """target = now / 4, by way of a number that float32 keeps little beside."""
    return dense_model([[[0.25, 0.0]], [[1.0]]], [[large], [-large]]).SerializeToString()


@pytest.mark.parametrize("large", [0.0, 2.0**20])
def test_margins_and_limits_leave_room_for_what_execution_adds(large: float) -> None:
    model = cancelling(large)
    (adds,) = chain_error(read_chain(model), np.array([0.0, 1.0]), np.array([64.0, 1000.0]))
    order, within, below, monotone, robust = executed(SPECIFICATION, model)
    assert order["order"] == {**SPECIFICATION["properties"][0]["order"], "margin": pytest.approx(-0.01 - 2.0 * adds)}
    assert within["range"]["minimum"] == pytest.approx(-adds)
    assert within["range"]["maximum"] == pytest.approx(8.0 + adds)
    assert within["range"]["when"] == {"now": [0, 1]} and "minimum" not in below["range"]
    assert monotone["monotone"]["violation"] == 0.25 and robust == SPECIFICATION["properties"][4]
    assert (adds > 0.05) == (large > 0), "float32 has eighths at 2^20"
    assert SPECIFICATION["properties"][0]["order"]["margin"] == -0.01, "the specification stays as it is"


def test_a_limit_that_the_proof_keeps_counts_where_it_is_less() -> None:
    order, *_ = executed({**SPECIFICATION, "rounding": {"target": 0.001}}, cancelling(2.0**20))
    assert order["order"]["margin"] == pytest.approx(-0.012)


def test_of_a_file_that_nobody_bounds_only_a_limit_says_something() -> None:
    tanh = dense_model([[[1.0, 0.0]], [[1.0]]], [[0.0], [0.0]], kind="Tanh").SerializeToString()
    assert [next(iter(one)) for one in executed(SPECIFICATION, tanh)] == ["monotone", "robust"]
    order, *_ = executed({**SPECIFICATION, "rounding": {"target": 0.001}}, tanh)
    assert order["order"]["margin"] == pytest.approx(-0.012)


def test_a_slope_for_all_says_nothing_of_a_whole_range() -> None:
    *_, monotone, _ = executed({**SPECIFICATION, "tolerance": 0.25}, cancelling(0.0))
    assert monotone["monotone"]["violation"] == math.inf
