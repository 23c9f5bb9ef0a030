"""Walls of a common specification as multiples of a workload's settings."""

import pytest

from feature_store.written.field_errors import FieldError
from models.tasks.control.demands import demanded

SETTINGS = {"slo_ms": 250.0, "cpu_ms": 4.0, "target.low": 0.5, "target.high": 8.0}


def test_multiples_become_numbers_in_boxes_and_conditions_alone() -> None:
    written = {"box": {"slo_ms": ["0.5 slo_ms", "slo_ms"]}, "properties": [
        {"monotone": {"features": ["slo_ms"], "when": {"p99_ms": ["slo_ms", 65536]}}}]}
    assert demanded(written, SETTINGS) == {"box": {"slo_ms": [125.0, 250.0]}, "properties": [
        {"monotone": {"features": ["slo_ms"], "when": {"p99_ms": [250.0, 65536]}}}]}


def test_limits_are_known_as_well_and_both_ends_of_a_range() -> None:
    written = {"properties": [{"range": {"output": "target", "minimum": "0.5 target.low", "maximum": 9,
                                         "when": {"present": ["2 target.low", "target.high"]}}}]}
    assert demanded(written, SETTINGS) == {"properties": [{"range": {
        "output": "target", "minimum": 0.25, "maximum": 9, "when": {"present": [1.0, 8.0]}}}]}
    with pytest.raises(FieldError, match=r"did you mean 'target\.high'") as refused:
        demanded({"properties": [{"range": {"maximum": "2 target.hihg"}}]}, SETTINGS)
    assert refused.value.path == ("properties", 0, "range", "maximum")


@pytest.mark.parametrize("text", ["target.most", "slo", "2slo_ms", "-1 slo_ms", "slo_ms 2", "0.5 rate"])
def test_anything_else_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(FieldError, match="expected a number or a multiple of a setting") as refused:
        demanded({"box": {"slo_ms": [1, text]}}, SETTINGS)
    assert refused.value.path == ("box", "slo_ms", 1)
