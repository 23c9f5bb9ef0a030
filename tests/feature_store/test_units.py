import pytest

from feature_store.errors import InputError
from feature_store.units import DIMENSIONS, conversion_factor

# One fact for each unit, written out: what one of it is in the first unit of its dimension.
FACTS = {
    "share": 1, "ratio": 1, "percent": 0.01, "permille": 0.001,
    "ms": 1, "ns": 0.000001, "us": 0.001, "s": 1000, "min": 60_000, "h": 3_600_000,
    "bytes": 1, "B": 1, "kB": 1000, "KB": 1000, "KiB": 1024, "MB": 1_000_000, "MiB": 1_048_576, "GB": 1_000_000_000,
    "GiB": 1_073_741_824,
    "cores": 1, "millicores": 0.001,
    "1/s": 1, "1/min": 1 / 60, "1/h": 1 / 3600,
    "count": 1, "rows": 1}


def test_every_unit_has_its_fact():
    assert {unit for scales in DIMENSIONS.values() for unit in scales} == set(FACTS)


@pytest.mark.parametrize("unit", FACTS)
def test_a_unit_is_what_everybody_knows_it_to_be(unit):
    first = next(next(iter(scales)) for scales in DIMENSIONS.values() if unit in scales)
    assert first in ("share", "ms", "bytes", "cores", "1/s", "count")
    assert conversion_factor(unit, first) == pytest.approx(FACTS[unit], rel=1e-15)


@pytest.mark.parametrize(("unit", "target", "factor"), [
    ("MiB", "MB", 1.048576), ("GiB", "MiB", 1024.0), ("min", "s", 60.0), ("h", "min", 60.0), ("ns", "us", 0.001),
    ("permille", "percent", 0.1), ("GB", "MB", 1000.0), ("requests", "requests", 1.0)])
def test_a_unit_converts_to_the_schemas_unit(unit, target, factor):
    assert conversion_factor(unit, target) == pytest.approx(factor, rel=1e-15)


def test_converting_there_and_back_is_the_identity():
    for scales in DIMENSIONS.values():
        for unit in scales:
            for target in scales:
                there = conversion_factor(unit, target) * conversion_factor(target, unit)
                assert there == pytest.approx(1.0, rel=1e-14)


def test_a_unit_of_another_dimension_is_refused():
    with pytest.raises(InputError, match=r"expected a unit that converts to 'share', got 'ms'; known"):
        conversion_factor("ms", "share")


def test_a_misspelt_unit_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'percent'"):
        conversion_factor("percnt", "share")
