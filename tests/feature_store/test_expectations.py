"""The gate with Great Expectations itself: each broken table is one workload of a single run, made once."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.expectations import DataGate
from feature_store.mapping import UNKNOWN_COMBINATION
from feature_store.schema import TelemetrySchema


def _shift(frame, first, delta):
    frame = frame.copy()
    frame.loc[first:, "window_start"] += pd.Timedelta(delta)
    return frame


def _at(frame, row, **values):
    frame = frame.copy()
    for name, value in values.items():
        frame.loc[row, name] = value
    return frame


# name of the case -> how the table is broken; and what the gate must say: column, rule, count, first row, message
BROKEN = {
    "empty": (lambda t: t.iloc[:0], "", "row_count", 0, None, "at least 50, got 0"),
    "few rows": (lambda t: t.iloc[:49], "", "row_count", 49, None, "at least 50, got 49"),
    "all NaN": (lambda t: t.assign(cpu_time=np.nan), "cpu_time", "not_null", 120, 0, "whole column is empty"),
    "a hole": (lambda t: _at(t, 7, latency_ms=np.nan), "latency_ms", "not_null", 1, 7, "1 of 120 rows, first at row 7"),
    "no label": (lambda t: _at(t, 3, environment=None), "environment", "not_null", 1, 3, "value in every row"),
    "no workload": (lambda t: _at(t, 3, workload=None), "workload", "not_null", 1, 3, "value in every row"),
    "no time": (lambda t: _at(t, 3, window_start=pd.NaT), "window_start", "not_null", 1, 3, "value in every row"),
    "percent": (lambda t: t.assign(psi_io_full=t.psi_io_full * 99 + 1.0), "psi_io_full", "range", 120, 0,
                "between 0 and 1 share, got .* it looks like percent"),
    "negative": (lambda t: _at(t, 9, latency_ms=-1.0), "latency_ms", "range", 1, 9, "at least 0.001 ms, got -1 "),
    "infinite": (lambda t: _at(t, 9, latency_ms=np.inf), "latency_ms", "finite", 1, 9, "must be finite, got inf"),
    "infinite share": (lambda t: _at(t, 9, cpu_time=np.inf), "cpu_time", "range", 1, 9, "got inf"),
    "renamed": (lambda t: t.rename(columns={"psi_io_full": "psi_io_fll"}), "psi_io_full", "column_present", 120, None,
                r"did you mean 'psi_io_fll'\?"),
    "text": (lambda t: t.assign(cpu_time="high"), "cpu_time", "numeric", 120, 0, "must hold numbers, got str .*'high'"),
    "duplicated": (lambda t: pd.concat([t, t.iloc[[-1]]], ignore_index=True), "window_start", "unique_windows", 2, 119,
                   "must be unique .* remove the repeated rows"),
    "unordered": (lambda t: t.iloc[[*range(10), 11, 10, *range(12, 120)]], "window_start", "time_order", 1, 10,
                  "must not go back from row to row, got a step of -60 s .*first at row 10, window 2024-01-01 00:10"),
    "clock back": (lambda t: _shift(t, 30, "-90s"), "window_start", "time_order", 1, 30, "the clock was set back"),
    "clock forward": (lambda t: _shift(t, 30, "1day"), "window_start", "time_gap", 1, 30,
                      "no hole over 6000 s inside .* got 86460 s .*the clock was set forward"),
    "wrong unit of time": (lambda t: t.assign(window_start=pd.to_datetime(t.index * 60.0, unit="s", utc=True)),
                           "window_start", "time_plausible", 120, 0, "unit of time looks wrong"),
    "overlapping": (lambda t: t.assign(window_s=90.0), "window_start", "time_overlap", 119, 1, "an overlap of 30 s"),
    "no zone": (lambda t: t.assign(window_start=t.window_start.dt.tz_localize(None)), "window_start", "zoned_time",
                120, 0, "must carry a time zone"),
    "constant target": (lambda t: t.assign(latency_ms=2.0), "latency_ms", "variation", 120, 0, "got 2 alone"),
}
SOUND = {
    "as recorded": lambda t: t,
    "other workloads beside it": lambda t: pd.concat([t.assign(workload="mysql"), t]),
    "a constant feature": lambda t: t.assign(cpu_quota_cores=1.0),
    "a pause between runs": lambda t: _shift(t, 40, "1day"),
    "an outage in production": lambda t: _shift(t.assign(combination=UNKNOWN_COMBINATION), 30, "1day"),
    "synthetic order": lambda t: t.assign(window_s=0.0, window_start=pd.to_datetime(t.index * 1.0, unit="s", utc=True)),
    "window length unknown": lambda t: t.assign(window_s=np.nan),
    "two environments": lambda t: pd.concat([t, t.assign(environment="shifted")], ignore_index=True),
}


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    return tmp_path_factory.mktemp("docs") / "site"


@pytest.fixture(scope="module")
def results(docs, schema, telemetry):
    """All cases, judged in one run with one site of Data Docs."""
    cases = {**{name: case[0] for name, case in BROKEN.items()}, **SOUND}
    frames = {name: change(telemetry()) for name, change in cases.items()}
    gate = DataGate()
    judged = {name: gate.judge(frame, schema) for name, frame in frames.items()}
    gate.write_docs(docs)
    return judged


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_fails_with_column_rule_count_and_first_row(results, case):
    _, column, rule, count, first_row, message = BROKEN[case]
    result = results[case]
    assert not result.passed
    (failure,) = [failure for failure in result.failures if (failure.column, failure.rule) == (column, rule)]
    assert (failure.count, failure.first_row) == (count, first_row)
    assert re.search(message, failure.message), failure.message
    assert "(workload redis" in failure.message


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_table_passes(results, case):
    assert results[case].passed, results[case].failures
    assert results[case].statistics["rows"] in (120, 240)


def test_one_fault_is_one_failure(results):
    """The message that matters is not buried under others that follow from it."""
    for case in ("empty", "all NaN", "percent", "infinite share", "renamed", "text", "clock forward", "no zone"):
        assert len(results[case].failures) == 1, results[case].failures
        assert not results[case].warnings


def test_a_constant_feature_is_a_warning(results):
    (warning,) = results["a constant feature"].warnings
    assert (warning.column, warning.rule) == ("cpu_quota_cores", "variation")


def test_the_result_says_what_was_asked_and_is_json(results):
    for result in results.values():
        checks = result.to_dict()["checks"]
        assert len(checks) == result.statistics["rules"]
        assert sum(not check["passed"] for check in checks) == len(result.failures) + len(result.warnings)
        json.dumps(result.to_dict(), allow_nan=False)
    assert results["synthetic order"].statistics["time"].startswith("synthetic order")


def test_the_data_docs_are_complete_and_name_no_other_host(results, docs):
    pages = sorted(path.relative_to(docs).parts[0] for path in docs.rglob("*.html"))
    assert pages.count("validations") == pages.count("expectations") == len(results)
    for path in docs.rglob("*"):
        if path.is_file():
            assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(https?:)?//""", path.read_text()), path
    index = (docs / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', index)
    assert len(links) == len(results)
    assert all((docs / link).is_file() for link in links)
    assert "it looks like percent" in index
    assert sum(path.stat().st_size for path in docs.rglob("*") if path.is_file()) < 150_000 * len(results)


def test_names_units_and_values_are_text_in_the_data_docs(tmp_path, schema, telemetry):
    """Great Expectations' pages show names, descriptions and values as they are: they get them as HTML."""
    (name, column), *others = schema.features.items()
    strange = f"{name}<img src=x onerror=alert(1)>"
    unit = replace(column, unit="share<script>alert(2)</script>")
    schema = replace(schema, features={strange: unit, **dict(others)})
    frame = telemetry().rename(columns={name: strange}).assign(environment="<b>base</b> & more")
    broken = pd.concat([frame, frame.iloc[[-1]]])  # a window twice: the pages list its values
    broken.loc[broken.index[5], strange] = 7.0
    gate = DataGate()
    result = gate.judge(broken, schema)
    gate.write_docs(tmp_path)
    assert {failure.rule for failure in result.failures} >= {"unique_windows", "range"}
    assert strange in {failure.column for failure in result.failures}, "messages name the column as it is"
    pages = list(tmp_path.rglob("*.html"))
    assert {path.relative_to(tmp_path).parts[0] for path in pages} == {"expectations", "validations", "index.html"}
    text = "".join(path.read_text() for path in pages)
    for tag in ("<img src=x", "<script>alert", "<b>base"):
        assert tag not in text
        assert html.escape(tag) in text


def test_a_column_of_lists_or_of_several_types_is_judged_too(schema, telemetry):
    """It is none of the model's: kept, and shown as text where it is text."""
    frame = telemetry().assign(spans=[["<a>", "b"]] * 120, label=["<b>", 7] * 60)
    assert DataGate().judge(frame, schema).passed


def test_row_numbers_are_those_of_the_source(schema, telemetry):
    """Rows of other workloads stand before: the number is the one in the file, not in the filtered table."""
    broken = _at(telemetry(), 7, latency_ms=-1.0)
    frame = pd.concat([telemetry(30, "mysql"), broken], ignore_index=True)
    assert DataGate().judge(frame, schema).failures[0].first_row == 37


def test_an_unknown_workload_is_told_which_there_are(schema, telemetry):
    (failure,) = DataGate().judge(telemetry(60, "mysql"), schema).failures
    assert "the table holds mysql" in failure.message


def test_nothing_to_ask_is_refused(schema, telemetry):
    with pytest.raises(InputError, match="schema must have a target"):
        DataGate().judge(telemetry(), TelemetrySchema("redis", {}, {}, ("environment",)))
