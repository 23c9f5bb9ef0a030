"""What is read of a user's file, and how long replicas took to come."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.sources.invocations import read_invocations
from systems.autoscaling.service.history import read_file, rises

ROWS = "time,rate_rps,p99_ms\n2026-01-01T00:00:00Z,5,10\n2026-01-01T00:01:00Z,6,\n2026-01-01T00:02:00Z,7,12\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "web.csv"
    path.write_text(text)
    return path


def test_a_file_is_read_by_its_names_with_the_length_of_a_window(tmp_path: Path) -> None:
    found = read_file(written(tmp_path, ROWS))
    assert found.attrs["window_s"] == 60.0 and list(found) == ["window_start", "rate_rps", "p99_ms"]
    assert found["rate_rps"].tolist() == [5.0, 6.0, 7.0] and np.isnan(found["p99_ms"].iloc[1])


def test_rows_may_stand_in_any_order_and_lack_a_rate(tmp_path: Path) -> None:
    lines = ROWS.splitlines()
    found = read_file(written(tmp_path, "\n".join([lines[0], lines[3], "2026-01-01T00:03:00Z,,", lines[1], lines[2]])))
    assert found["rate_rps"].tolist() == [5.0, 6.0, 7.0]


@pytest.mark.parametrize(("text", "said"), [
    (ROWS.replace("rate_rps", "rate"), "a column rate_rps, .*got time, rate, p99_ms; rename"),
    (ROWS.replace("time,", "when,"), "a column window_start or time or timestamp"),
    (ROWS.replace("00:01:00Z", "00:02:00Z"), "00:02:00.* in rows 3 and 4"),
    (ROWS.replace("5,10", "five,10"), "got five in row 2"), (ROWS.replace("6,", "-6,"), "row 3"),
    (ROWS.replace("2026-01-01T00:01:00Z", "yesterday"), "got yesterday in row 3"),
    (ROWS.splitlines()[0] + "\n", "different times"),
    ("time,rate_rps\n" + "".join(f"2026-01-01T00:{minute:02d}:00Z,1\n" for minute in (0, 1, 2, 9, 17, 31, 32)),
     "equal distances")])
def test_what_cannot_be_used_is_said_with_its_row(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_file(written(tmp_path, text))


def test_a_duration_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "web.parquet"
    times = pd.date_range("2026-01-01", periods=3, freq="60s", tz="UTC")
    pd.DataFrame({"time": times, "rate_rps": 5.0, "p99_ms": pd.to_timedelta(5, "ms")}).to_parquet(path)
    with pytest.raises(InputError, match="column 'p99_ms' must hold numbers"):
        read_file(path)


def test_a_whole_number_of_hundreds_of_digits_is_named_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'rate_rps' must hold numbers from 0 to 1e\+15, got 9+ in row 2"):
        read_file(written(tmp_path, ROWS.replace(",5,", f",{'9' * 400},")))
    with pytest.raises(InputError, match=r"expected a number of 0 or more in every minute, got '9+'"):
        read_invocations(written(tmp_path, f"f,1,2\na,{'9' * 400},3\n"))


def test_a_file_that_is_torn_or_damaged_is_no_table(tmp_path: Path) -> None:
    for name, content in (("torn.csv.gz", gzip.compress(ROWS.encode() * 50, mtime=0)[:40]),
                          ("damaged.csv.xz", b"\xff" * 40)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="must be CSV"):
            read_file(tmp_path / name)
        with pytest.raises(InputError, match="expected a CSV file"):
            read_invocations(tmp_path / name)


def test_a_rise_takes_until_as_many_serve() -> None:
    asked = np.array([2, 2, 4, 4, 4, 4, 3, 3, 5, 5, 5], dtype=float)
    ready = np.array([2, 2, 2, 3, 4, 4, 3, 3, 3, 3, 5], dtype=float)
    assert rises(asked, ready, 10.0) == [20.0, 20.0]


def test_a_rise_that_was_overtaken_or_not_seen_to_its_end_counts_for_nothing() -> None:
    assert rises(np.array([2.0, 4, 6, 6]), np.array([2.0, 2, 2, 2]), 10.0) == []
    assert rises(np.array([2.0, 4, np.nan, 4]), np.array([2.0, 2, 2, 4]), 10.0) == []
    assert rises(np.array([2.0, 4]), np.array([2.0, 4]), 10.0) == [5.0], "within half a step"


@pytest.mark.parametrize(("column", "said"), [
    (["05/03/2026 22:00", "05/03/2026 22:01", "05/03/2026 22:02"], "ISO times"), ([0, 1, 2], "ISO times"),
    ([1.0, 2.0, 3.0], "Unix times in s or ms")])
def test_a_time_that_could_be_two_is_none(tmp_path: Path, column: list[Any], said: str) -> None:
    path = tmp_path / "web.csv"
    pd.DataFrame({"time": column, "rate_rps": [1.0, 2.0, 3.0]}).to_csv(path, index=False)
    with pytest.raises(InputError, match=said):
        read_file(path)


@pytest.mark.parametrize("factor", [1, 1000])
def test_unix_times_are_read_in_seconds_and_milliseconds(tmp_path: Path, factor: int) -> None:
    path = tmp_path / "web.csv"
    times = [factor * (1_772_000_000 + 60 * number) for number in range(3)]
    pd.DataFrame({"time": times, "rate_rps": [1.0, 2.0, 3.0]}).to_csv(path, index=False)
    assert read_file(path).attrs["window_s"] == 60.0


def test_a_time_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="times must be unique, got 2026-01-01 00:01:00"):
        read_file(written(tmp_path, ROWS + ROWS.splitlines()[2] + "\n"))
