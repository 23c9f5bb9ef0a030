"""What a counterexample breaks, in the outputs' units."""

import numpy as np
import pytest

from models.verification.language.broken import broken, missed_by
from models.verification.language.properties import OutputRange
from models.verification.language.specification_language import parse_specification

BOX = {"load": (0.0, 10.0), "present": (1.0, 8.0)}


def specification(*properties):
    return parse_specification({"tolerance": 0.1, "properties": list(properties)}, tuple(BOX), BOX, "test",
                               ("cores", "pods"))


KEPT = {"order": {"upper": "pods", "lower": "present", "factor": 0.75, "when": {"load": [2, 10]}}}
RISING = {"monotone": {"features": ["load"], "direction": "increasing", "output": "cores"}}
BOUNDED = {"range": {"output": "cores", "maximum": 4.0}}


def at(load, present, cores, pods):
    return np.array([[load, present]]), np.array([[cores, pods]])


def test_the_worst_comes_first_and_what_is_kept_is_left_out():
    given = specification(KEPT, RISING, BOUNDED)
    found = broken(given, *at(5.0, 8.0, 4.5, 2.0))
    assert [one.rule for one in found] == [given.properties[0], given.properties[2]]
    assert [one.amount for one in found] == pytest.approx([4.0, 0.5])
    assert broken(given, *at(5.0, 8.0, 4.0, 6.0)) == []


def test_a_property_whose_condition_does_not_hold_is_not_broken():
    assert broken(specification(KEPT), *at(1.0, 8.0, 0.0, 2.0)) == []
    # 0.2 as float32 lies above 0.2: a runtime was fed with it for the wall
    edge = {"order": {**KEPT["order"], "when": {"load": [0, 0.2]}}}
    assert len(broken(specification(edge), *at(float(np.float32(0.2)), 8.0, 0.0, 2.0))) == 1


def test_a_pair_in_the_wrong_order_is_told_beyond_the_tolerance():
    x, y = np.array([[2.0, 3.0], [6.0, 3.0]]), np.array([[5.0, 1.0], [3.0, 0.0]])
    (found,) = broken(specification(KEPT, RISING), x, y)
    assert found.amount > 0 and found.amount == pytest.approx(2.0 - 4.0 * specification(RISING).slope(0, 0))
    assert broken(specification(RISING), x + [[0.0, 0.0], [0.0, 1.0]], y) == []  # differs in two inputs


def test_a_value_is_outside_of_its_range_on_either_side():
    rule = OutputRange(0, 1.0, 4.0)
    x, y = np.zeros((3, 2)), np.array([[0.25, 0.0], [2.0, 0.0], [4.5, 0.0]])
    applies, amount = missed_by(rule, x, y)
    assert applies.all() and amount.tolist() == [0.75, -1.0, 0.5]
