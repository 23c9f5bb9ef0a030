import pytest

from feature_store.errors import InputError
from feature_store.units import DIMENSIONS, conversion_factor


@pytest.mark.parametrize(("unit", "target", "factor"), [
    ("percent", "share", 0.01), ("s", "ms", 1000.0), ("us", "ms", 0.001), ("KB", "bytes", 1000.0),
    ("KiB", "bytes", 1024.0), ("GB", "MB", 1000.0), ("millicores", "cores", 0.001), ("1/min", "1/s", 1 / 60),
    ("requests", "requests", 1.0),
])
def test_a_unit_converts_to_the_schemas_unit(unit, target, factor):
    assert conversion_factor(unit, target, "here") == pytest.approx(factor, rel=1e-15)


def test_converting_there_and_back_is_the_identity():
    for scales in DIMENSIONS.values():
        for unit in scales:
            for target in scales:
                there = conversion_factor(unit, target, "") * conversion_factor(target, unit, "")
                assert there == pytest.approx(1.0, rel=1e-14)


def test_a_unit_of_another_dimension_is_refused():
    with pytest.raises(InputError, match=r"unit must convert to 'share', got 'ms' \(here\)"):
        conversion_factor("ms", "share", "here")


def test_a_misspelt_unit_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'percent'"):
        conversion_factor("percnt", "share", "here")
