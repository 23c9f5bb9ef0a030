from pathlib import Path

import pandas as pd
import pytest

from feature_store.bad_rows import BadRows
from feature_store.mapping import ColumnSource
from feature_store.origin import Origin, Unreadable, numbered, row_number, row_text

ORIGIN = Origin({"": {"latency_ms": ColumnSource("rt", 0.001)}, "web": {"cpu_time": ColumnSource("web_cpu")}},
                (Unreadable(17, "rt", "n.a."),), BadRows(("range",), 0.01))


@pytest.mark.parametrize("origin", [ORIGIN, Origin()])
def test_it_comes_back_as_it_was_written(tmp_path: Path, origin: Origin) -> None:
    origin.write(tmp_path)
    assert Origin.read(tmp_path) == origin


def test_where_none_was_written_it_is_empty(tmp_path: Path) -> None:
    assert Origin.read(tmp_path) == Origin()


def test_a_column_has_its_name_in_the_file_first() -> None:
    assert ORIGIN.column_text("web", "latency_ms") == "column 'rt' (latency_ms)"
    assert ORIGIN.column_text("web", "cpu_time") == "column 'web_cpu' (cpu_time)"
    assert ORIGIN.column_text("db", "cpu_time") == "column 'cpu_time'"


@pytest.mark.parametrize(("unit", "text"), [("row", "row 4"), ("record", "record 4"), ("else", "row 4")])
def test_a_row_has_its_number_in_the_source_and_its_unit(tmp_path: Path, unit: str, text: str) -> None:
    frame = numbered(pd.DataFrame({"x": [1, 2, 3]}), 2, unit)
    assert row_text(frame.index, 2) == text
    frame[frame["x"] != 2].to_parquet(tmp_path / "t.parquet")
    assert row_text(pd.read_parquet(tmp_path / "t.parquet").index, 1) == text, "Parquet keeps it"


def test_rows_without_numbers_are_counted() -> None:
    assert row_number(pd.Index(["a", "b"]), 1) == 1
