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
        "workload": np.where(run % 2 == 0, "redis", "mysql"), "environment": "base", "combination": run.astype(str),
        "a": a, "b": run * 1.0, "c": c, "constant": 1.0, "latency_ms": a + 10.0 * run,
    })


def test_pooled_coefficients_are_those_of_pandas(frame):
    table = correlation_table(by_workload(frame), ["a", "b", "c"])
    for workload, rows in frame.groupby("workload"):
        for name in ("a", "b", "c"):
            assert table.pooled.loc[workload, name] == pytest.approx(rows[name].corr(rows["latency_ms"]), abs=1e-12)


def test_averaged_coefficients_are_the_mean_over_the_runs(frame):
    table = correlation_table(by_workload(frame), ["a", "c"])
    assert table.runs.to_dict() == {"mysql": 5, "redis": 5}
    for workload, rows in frame.groupby("workload"):
        within = [run["c"].corr(run["latency_ms"]) for _, run in rows.groupby("combination")]
        assert table.averaged.loc[workload, "c"] == pytest.approx(np.mean(within), abs=1e-12)
        assert table.averaged.loc[workload, "a"] == pytest.approx(1.0)


def test_what_separates_runs_shows_in_the_pooled_table_alone(frame):
    table = correlation_table(by_workload(frame), ["b"])
    assert (table.pooled["b"] > 0.99).all()
    assert table.averaged["b"].isna().all()


def test_a_constant_metric_and_a_run_of_two_rows_have_no_coefficient(frame):
    assert correlation_table(by_workload(frame), ["constant"]).pooled["constant"].isna().all()
    assert correlation_table(by_workload(frame.iloc[:2]), ["a"]).pooled["a"].isna().all()


def test_missing_values_are_left_out(frame):
    holes = frame.assign(a=frame.a.where(frame.index % 7 > 0))
    rows = holes[holes.workload == "redis"]
    found = correlation_table(by_workload(holes), ["a"]).pooled.loc["redis", "a"]
    assert found == pytest.approx(rows.a.corr(rows.latency_ms))


def test_a_missing_column_is_named(frame):
    with pytest.raises(InputError, match=r"expected a column 'latency_m', got none .*did you mean 'latency_ms'"):
        correlation_table(by_workload(frame), ["a"], "latency_m")


def test_the_table_is_json(frame):
    assert json.loads(json.dumps(correlation_table(by_workload(frame), ["a", "constant"]).to_dict(),
                                 allow_nan=False))["pooled"]["redis"]["constant"] is None
