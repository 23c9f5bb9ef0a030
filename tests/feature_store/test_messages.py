import pytest

from feature_store.bad_rows import DROP_THEM
from feature_store.mapping import ColumnSource
from feature_store.messages import Judged, describe
from feature_store.origin import Origin, Unreadable
from feature_store.rules import Rule, bounds_text, check_table


@pytest.mark.parametrize("info", [
    {"raised_exception": True, "exception_message": "no such metric"},
    {"('column_values.between', 'x')": {"raised_exception": True, "exception_message": "no such metric"}},
])
def test_a_rule_that_could_not_be_evaluated_says_so(schema, telemetry, info):
    rule = Rule("range", "cpu_time", "cpu_time is between 0 and 1 share", minimum=0.0, maximum=1.0)
    judged = Judged(check_table(telemetry()), telemetry(), schema)
    failure = describe(rule, {"success": False, "exception_info": info, "result": {}}, judged)
    assert failure.message == "cpu_time is between 0 and 1 share: must be checked, got no such metric (workload redis)"
    assert failure.count == 120


@pytest.mark.parametrize(("highest", "factor", "advice"), [
    (100.0, 1.0, "looks like percent"), (1.01, 1.0, "looks like percent"),
    (250.0, 1.0, "check the unit of the source: the schema's is share"),
    (100.0, 0.01, "check the unit of the source: the schema's is share; or have a few such rows "
                  "dropped by `bad_rows` in the mapping")])
def test_a_share_beyond_one_hints_at_its_unit(schema, telemetry, highest, factor, advice):
    """But not at one that the mapping says already."""
    origin = Origin({"": {"cpu_time": ColumnSource("cpu", factor)}})
    frame = telemetry()
    frame.loc[4, "cpu_time"] = highest
    rule = Rule("range", "cpu_time", "", minimum=0.0, maximum=1.0)
    result = {"success": False, "result": {"unexpected_count": 1, "partial_unexpected_index_list": [4]}}
    failure = describe(rule, result, Judged(check_table(frame), frame, schema, origin))
    assert advice in failure.message
    assert failure.first_row == 4


def test_a_table_without_row_numbers_counts_positions(schema, telemetry):
    frame = telemetry().set_index("window_start", drop=False)
    rule = Rule("not_null", "cpu_time", "")
    result = {"success": False, "result": {"unexpected_count": 1, "partial_unexpected_index_list": [4]}}
    assert describe(rule, result, Judged(check_table(frame), frame, schema)).first_row == 4


def test_bounds_are_words():
    assert [bounds_text(0.0, 1.0), bounds_text(0.0, None), bounds_text(None, 1.0)] == [
        "between 0 and 1", "at least 0", "at most 1"]


@pytest.mark.parametrize(("count", "advised"), [(12, True), (13, False)])
def test_rows_are_to_be_dropped_only_where_they_are_few(schema, telemetry, count, advised):
    frame = telemetry()
    frame.loc[: count - 1, "latency_ms"] = float("nan")
    result = {"success": False, "result": {"unexpected_count": count, "partial_unexpected_index_list": [0]}}
    judged = Judged(check_table(frame), frame, schema)
    message = describe(Rule("not_null", "latency_ms", ""), result, judged).message
    assert message.endswith("fix the source" + f"; or {DROP_THEM}" * advised)


def test_a_value_in_another_unit_is_said_as_it_stands_in_the_file_too(schema, telemetry):
    frame = telemetry()
    frame.loc[4, "latency_ms"] = -0.12
    origin = Origin({"": {"latency_ms": ColumnSource("rt", 0.001)}})
    rule = Rule("range", "latency_ms", "", minimum=0.001)
    result = {"success": False, "result": {"unexpected_count": 1, "partial_unexpected_index_list": [4]}}
    message = describe(rule, result, Judged(check_table(frame), frame, schema, origin)).message
    assert message.startswith("column 'rt' (latency_ms) must be at least 0.001 ms, got -0.12 (-120 in the file) (")


def test_a_cell_that_no_number_could_be_read_from_is_said_as_it_stands(schema, telemetry):
    frame = telemetry()
    frame.loc[4, "latency_ms"] = float("nan")
    origin = Origin({"": {"latency_ms": ColumnSource("rt")}}, (Unreadable(4, "rt", "n.a."),))
    result = {"success": False, "result": {"unexpected_count": 1, "partial_unexpected_index_list": [4]}}
    judged = Judged(check_table(frame), frame, schema, origin)
    message = describe(Rule("not_null", "latency_ms", ""), result, judged).message
    assert message.startswith("column 'rt' (latency_ms) must have a value in every row, got 'n.a.' (workload redis: 1")
