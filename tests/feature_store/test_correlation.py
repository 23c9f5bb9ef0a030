import json

import numpy as np
import pandas as pd
import pytest

from feature_store.correlation import correlation_table
from feature_store.errors import InputError


def by_workload(frame):
    return dict(tuple(frame.groupby("workload")))


@pytest.fixture
def frame():
    """Within a run the latency follows a; between runs it follows b, which a run holds constant; c is noise."""
    generator = np.random.default_rng(0)
    run = np.repeat(np.arange(10), 30)
    a, c = generator.random(300), generator.random(300)
    return pd.DataFrame({
        "workload": np.where(run % 2 == 0, "redis", "mysql"),
        "a": a, "b": run * 1.0, "c": c, "constant": 1.0, "latency_ms": a + 10.0 * run,
    })


def test_pooled_coefficients_are_those_of_pandas(frame):
    table = correlation_table(by_workload(frame), ["a", "b", "c"])
    for workload, rows in frame.groupby("workload"):
        for name in ("a", "b", "c"):
            assert table[workload][name] == pytest.approx(rows[name].corr(rows["latency_ms"]), abs=1e-12)


def test_what_separates_runs_shows(frame):
    assert all(row["b"] > 0.99 for row in correlation_table(by_workload(frame), ["b"]).values())


def test_a_constant_metric_and_a_run_of_two_rows_have_no_coefficient(frame):
    assert correlation_table(by_workload(frame), ["constant"]) == {
        "mysql": {"constant": None}, "redis": {"constant": None}}
    assert correlation_table(by_workload(frame.iloc[:2]), ["a"])["redis"] == {"a": None}


def test_the_table_is_json(frame):
    table = correlation_table(by_workload(frame), ["a", "constant"])
    assert json.loads(json.dumps(table, allow_nan=False)) == table


def test_missing_values_are_left_out(frame):
    holes = frame.assign(a=frame.a.where(frame.index % 7 > 0))
    rows = holes[holes.workload == "redis"]
    found = correlation_table(by_workload(holes), ["a"])["redis"]["a"]
    assert found == pytest.approx(rows.a.corr(rows.latency_ms))


def test_a_missing_column_is_named(frame):
    with pytest.raises(InputError, match=r"expected a column 'latency_m', got none .*did you mean 'latency_ms'"):
        correlation_table(by_workload(frame), ["a"], "latency_m")
