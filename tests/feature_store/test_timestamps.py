import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.mapping import TimeSource
from feature_store.timestamps import carries_zone, is_time, utc_timestamps

INSTANT = pd.Timestamp("2024-06-01T12:00:00.5Z")


def _read(values, unit="iso", zone="UTC"):
    return utc_timestamps(pd.Series(values, name="t"), TimeSource("t", unit, zone), "file")


@pytest.mark.parametrize(("value", "unit", "zone"), [
    (INSTANT.timestamp(), "s", "UTC"),
    (INSTANT.timestamp() * 1e3, "ms", "UTC"),
    (INSTANT.value // 1000, "us", "UTC"),
    (INSTANT.value, "ns", "UTC"),
    ("2024-06-01T12:00:00.5Z", "iso", "Asia/Tokyo"),
    ("2024-06-01 14:00:00.5+02:00", "iso", "UTC"),
    ("2024-06-01 14:00:00.5+02", "iso", "UTC"),
    ("20240601T140000.5 +02", "iso", "UTC"),
    ("2024-06-01T14:00:00.5", "iso", "Europe/Berlin"),
    (pd.Timestamp("2024-06-01T14:00:00.5"), "iso", "Europe/Berlin"),
    (INSTANT.tz_convert("Asia/Tokyo"), "iso", "UTC"),
])
def test_every_way_to_write_an_instant_gives_that_instant(value, unit, zone):
    assert _read([value], unit, zone).iloc[0] == INSTANT


def test_offsets_of_hours_alone_stand_beside_others():
    """As PostgreSQL writes times of winter and summer."""
    times = ["2024-06-01 13:00:00.5+01", "2024-06-01 14:00:00.5+02", "2024-06-01T12:00:00.5Z"]
    assert set(_read(times)) == {INSTANT}


def test_an_empty_cell_stays_empty():
    assert _read([np.nan, 1.7e9], "s").isna().tolist() == [True, False]
    assert _read([None, "2024-06-01T12:00:00Z"]).isna().tolist() == [True, False]


@pytest.mark.parametrize(("values", "unit", "zone", "message"), [
    (["2024-06-01T12:00Z", "noon"], "iso", "UTC", "times must all carry a zone or none, got 'noon' at row 1"),
    (["2024-06-01T12:00", "noon"], "iso", "UTC", "ISO 8601, got 'noon' at row 1 .*1 of 2 rows"),
    ([1.7e9], "iso", "UTC", "numbers need a mapping with time"),
    (["2024-06-01"], "s", "UTC", "time must be a number of s since 1970"),
    ([1.7e9, 1e30], "s", "UTC", r"got 1e\+30 at row 1"),
    ([1.7e9, np.nan, -1e30], "s", "UTC", r"got -1e\+30 at row 2"),
    (["2024-06-01T12:00:00+1", "2024-06-01T12:00:00+2"], "iso", "UTC", r"ISO 8601, got '2024-06-01T12:00:00\+1' and"),
    (["2024-06-01 12:00:00+01", "2024-06-01"], "iso", "UTC", "times must all carry a zone or none, got '2024-06-01'"),
    (["2024-10-27T02:30:00"], "iso", "Europe/Berlin", "local times must be unambiguous"),
    (["2024-03-31T02:30:00"], "iso", "Europe/Berlin", "local times must be unambiguous"),
])
def test_a_bad_time_is_named(values, unit, zone, message):
    with pytest.raises(InputError, match=message):
        _read(values, unit, zone)


@pytest.mark.parametrize(("values", "unit"), [
    (np.array(["2000-01-01", "3000-01-01"], "datetime64[us]"), "iso"),
    (pd.to_datetime(["2000-01-01", "3000-01-01"], utc=True), "iso"),
    (["2000-01-01", "9999-12-31"], "iso"), ([0, 253_370_764_800], "s"),
    (np.array([0, -(2**60)], "datetime64[us]"), "iso")])
def test_a_time_that_nanoseconds_do_not_hold_is_named_with_its_row(values, unit):
    with pytest.raises(InputError, match=r"time must lie in the years 1678 to 2261, got .* at row 1 .*1 of 2 rows"):
        _read(values, unit)
    assert _read(np.array(["1678-01-01", "2261-12-31T23:59:59", "NaT"], "datetime64[us]")).isna().sum() == 1


@pytest.mark.parametrize("unit", ["s", "iso"])
def test_truth_values_are_no_times(unit):
    with pytest.raises(InputError, match=r"time must be .*, got '?True"):
        _read([True, False], unit)
    assert not is_time(pd.Series([True, False])).any()


def test_a_zone_is_seen_in_text_and_in_timestamps():
    assert carries_zone(pd.Series(["2024-06-01T12:00:00+0200"]))
    assert carries_zone(pd.Series(["2024-06-01 12:00:00+00"]))
    assert not carries_zone(pd.Series(["2024-06-01"])) and not carries_zone(pd.Series(["2024-06"]))
    assert carries_zone(pd.Series([INSTANT]))
    assert not carries_zone(pd.Series([INSTANT.tz_localize(None)]))
