import pytest

from feature_store.bad_rows import ROW_RULES, BadRowsFields
from feature_store.errors import InputError
from feature_store.rules import rules_for
from feature_store.written.model import parse_written


def policy(text):
    return parse_written(BadRowsFields, text, "bad_rows", "mapping.yaml").policy()


@pytest.mark.parametrize(("written", "share"), [("1 %", 0.01), ("1%", 0.01), ("0.01", 0.01), ("2.5 %", 0.025),
                                                ("0.5", 0.5), ("'1 %'", 0.01)])
def test_a_share_is_written_in_percent_or_as_a_number(written, share):
    assert policy(f"at_most: {written}").at_most == pytest.approx(share)


@pytest.mark.parametrize("written", ["1", "0", "-0.1", "100 %", "0 %", "'0.01'", "one", "true", "1  %", "1 % of them",
                                     "[0.1]", "150%", "1e1 %"])
def test_what_could_mean_another_share_is_refused(written):
    with pytest.raises(InputError, match=r"^at_most: expected a share above 0 and below 1, such as 1 % or 0.01, got .*"
                                         r"\(mapping.yaml, line 1\)"):
        policy(f"at_most: {written}")


def test_all_rules_of_rows_are_meant_or_those_that_are_listed():
    assert policy("{drop: true, at_most: 1 %}").rules == policy("at_most: 1 %").rules == ROW_RULES
    assert policy("{drop: [range, not_null], at_most: 1 %}").rules == ("not_null", "range")


@pytest.mark.parametrize(("text", "message"), [
    ("drop: true", "the field 'at_most' is missing"),
    ("{drop: false, at_most: 1 %}", "drop: expected true or a list"),
    ("{drop: [], at_most: 1 %}", "drop: expected true or a list"),
    ("{drop: [rnge], at_most: 1 %}", r"drop\[0\]: expected numeric, not_null, .*, got 'rnge'; did you mean 'range'\?"),
    ("{dropp: true, at_most: 1 %}", r"dropp: unknown field; did you mean 'drop'\?"),
])
def test_a_policy_that_is_none_says_where_and_what(text, message):
    with pytest.raises(InputError, match=message):
        policy(text)


@pytest.mark.parametrize(("share", "rows", "allowed"), [
    ("1 %", 1600, 16), ("1 %", 99, 0), ("1 %", 100, 1), ("0.29", 100, 29), ("0.07", 100, 7), ("0.3 %", 1000, 3)])
def test_a_share_of_rows_is_rounded_down_and_not_by_the_float(share, rows, allowed):
    assert policy(f"at_most: {share}").allowed(rows) == allowed


def test_the_rules_that_may_be_listed_are_rules_of_the_gate(schema, telemetry):
    frame = telemetry()
    asked = {rule.kind for rule in rules_for(schema, frame.assign(
        psi_io_full="x", zoned=1.0, step_s=0.0, overlap_s=0.0, gap_s=0.0, year=2024.0))}
    assert set(ROW_RULES) <= asked
