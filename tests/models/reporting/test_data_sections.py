"""What the data section says of bad rows."""

from typing import Any

import pytest

from models.reporting.data_sections import data_quality
from models.reporting.document import Note, Table

FOUND = {"rows": 1600, "allowed": 16, "at_most": 0.01, "unit": "row", "count": 3, "dropped": 2,
         "by_rule": {"range": 2, "time_gap": 1},
         "first": [{"row": 17, "rule": "range", "column": "p50 (us)", "value": "-4"}]}


def parts(found: dict[str, Any] | None) -> list[Any]:
    data = {"quality": {"rows": 5}, **({"bad_rows": found} if found is not None else {})}
    return list(data_quality(None, {"data": data}, {}))


def test_dropped_rows_are_counted_by_rule_and_the_first_of_them_listed() -> None:
    (table,) = [part for part in parts(FOUND) if isinstance(part, Table) and part.caption == "Bad rows"]
    assert table.header == ("Row", "Column in the file", "Rule", "Value")
    assert [[cell.text for cell in row] for row in table.rows] == [["17", "p50 (us)", "range", "-4"]]
    assert table.note.replace("\N{NO-BREAK SPACE}", " ") == (
        "2 of 1,600 rows were bad and are left out; 1 hole in time is left open; the mapping allows up to 16 (1.0 %). "
        "By rule: 2 range, 1 time_gap. 2 more not shown.")


def test_where_none_was_bad_that_is_said() -> None:
    notes = [part.text for part in parts({**FOUND, "by_rule": {}, "first": [], "count": 0}) if isinstance(part, Note)]
    assert notes[0].startswith("None of 1,600 rows is bad; the mapping allows up to 16 (1.0")


@pytest.mark.parametrize("found", [None, {}])
def test_without_a_policy_there_is_nothing_to_say(found: dict[str, Any] | None) -> None:
    assert not any("bad" in part.caption.lower() for part in parts(found) if isinstance(part, Table))
