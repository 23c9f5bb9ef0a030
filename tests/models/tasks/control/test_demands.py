"""Walls of a common specification as multiples of a workload's settings."""

import pytest

from feature_store.written.field_errors import FieldError
from models.tasks.control.demands import demanded

SETTINGS = {"slo_ms": 250.0, "cpu_ms": 4.0}


def test_multiples_become_numbers_in_boxes_and_conditions_alone() -> None:
    written = {"box": {"slo_ms": ["0.5 slo_ms", "slo_ms"]}, "properties": [
        {"monotone": {"features": ["slo_ms"], "when": {"p99_ms": ["slo_ms", 65536]}}}]}
    assert demanded(written, SETTINGS) == {"box": {"slo_ms": [125.0, 250.0]}, "properties": [
        {"monotone": {"features": ["slo_ms"], "when": {"p99_ms": [250.0, 65536]}}}]}


@pytest.mark.parametrize("text", ["slo", "2slo_ms", "-1 slo_ms", "slo_ms 2", "0.5 rate"])
def test_anything_else_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(FieldError, match="expected a number or a multiple of a setting") as refused:
        demanded({"box": {"slo_ms": [1, text]}}, SETTINGS)
    assert refused.value.path == ("box", "slo_ms", 1)
