"""A table says what its columns say, row by row."""

import pytest

from benchmarks.harness.columns import columns_table, left, percent, right
from benchmarks.harness.markdown import NOT_MEASURED, median_and_range, number

ROWS = [{"name": "a|b", "fit": {"seconds": 1234.5}, "share": 0.5}, {"name": "c", "fit": {"seconds": None}, "share": 0}]


def test_keys_parts_and_functions_are_printed_as_the_column_says() -> None:
    assert columns_table(
        ROWS, left("name", "name"), right("seconds", "fit.seconds", number), right("share", "share", percent(1)),
        right("twice", lambda row: 2 * row["share"], ".2f")).split("\n") == [
            "| name | seconds | share | twice |", "| --- | ---: | ---: | ---: |",
            "| a\\|b | 1,230 | 50.0 % | 1.00 |", "| c |  | 0.0 % | 0.00 |"]


def test_what_rounds_to_a_thousand_is_written_as_one() -> None:
    assert [number(value) for value in (999.4, 999.7, -999.7, 1234.5)] == ["999", "1,000", "-1,000", "1,230"]


def test_without_rows_nothing_is_measured() -> None:
    assert columns_table([], left("name", "name")) == NOT_MEASURED


@pytest.mark.parametrize(("values", "text"), [
    ([], ""), ([2.0], "2.00"), ([1.0, 4.0, 2.0], "2.00 (1.00 to 4.00)")])
def test_a_median_stands_with_its_range_where_there_is_one(values: list[float], text: str) -> None:
    assert median_and_range(values) == text
