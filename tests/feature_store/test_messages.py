import pytest

from feature_store.messages import Judged, describe
from feature_store.rules import Rule, bounds_text, check_table


@pytest.mark.parametrize("info", [
    {"raised_exception": True, "exception_message": "no such metric"},
    {"('column_values.between', 'x')": {"raised_exception": True, "exception_message": "no such metric"}},
])
def test_a_rule_that_could_not_be_evaluated_says_so(schema, telemetry, info):
    rule = Rule("range", "cpu_time", "cpu_time is between 0 and 1 share", minimum=0.0, maximum=1.0)
    judged = Judged(check_table(telemetry()), telemetry(), telemetry(), schema)
    failure = describe(rule, {"success": False, "exception_info": info, "result": {}}, judged)
    assert failure.message == "cpu_time is between 0 and 1 share: must be checked, got no such metric (workload redis)"
    assert failure.count == 120


@pytest.mark.parametrize(("highest", "advice"), [(100.0, "looks like percent"), (1.01, "looks like percent"),
                                                 (250.0, "check the unit of the source: the schema's is share")])
def test_a_share_beyond_one_hints_at_its_unit(schema, telemetry, highest, advice):
    frame = telemetry()
    frame.loc[4, "cpu_time"] = highest
    rule = Rule("range", "cpu_time", "", minimum=0.0, maximum=1.0)
    result = {"success": False, "result": {"unexpected_count": 1, "partial_unexpected_index_list": [4]}}
    failure = describe(rule, result, Judged(check_table(frame), frame, frame, schema))
    assert advice in failure.message
    assert failure.first_row == 4


def test_a_table_without_row_numbers_counts_positions(schema, telemetry):
    frame = telemetry().set_index("window_start", drop=False)
    rule = Rule("not_null", "cpu_time", "")
    result = {"success": False, "result": {"unexpected_count": 1, "partial_unexpected_index_list": [4]}}
    assert describe(rule, result, Judged(check_table(frame), frame, frame, schema)).first_row == 4


def test_bounds_are_words():
    assert [bounds_text(0.0, 1.0), bounds_text(0.0, None), bounds_text(None, 1.0)] == [
        "between 0 and 1", "at least 0", "at most 1"]
