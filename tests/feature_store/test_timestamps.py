import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.mapping import TimeSource
from feature_store.timestamps import carries_zone, utc_timestamps

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


def test_a_zone_is_seen_in_text_and_in_timestamps():
    assert carries_zone(pd.Series(["2024-06-01T12:00:00+0200"]))
    assert carries_zone(pd.Series(["2024-06-01 12:00:00+00"]))
    assert not carries_zone(pd.Series(["2024-06-01"])) and not carries_zone(pd.Series(["2024-06"]))
    assert carries_zone(pd.Series([INSTANT]))
    assert not carries_zone(pd.Series([INSTANT.tz_localize(None)]))
