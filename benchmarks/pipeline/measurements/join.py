"""The point-in-time join of feature_store/joins.py beside pandas alone, a loop over groups, and DuckDB."""

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.isolation import Context
from benchmarks.harness.quantity import below, quantity
from benchmarks.pipeline.sizes import Sizes
from feature_store.joins import as_of_join

GOAL_SECONDS = 1.0
KEYS = 20
TOLERANCE = pd.Timedelta(seconds=60)
Join = Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]


def measure(sizes: Sizes, context: Context) -> dict[str, Any]:
    """As many rows on both sides; every way must give the same values before its time counts."""
    left, right = _tables(sizes.join_rows)
    ways: dict[str, tuple[str, Join, str]] = {
        "assay": (f"point-in-time join of {sizes.join_rows:,} rows", _assay, ""),
        "merge_asof": ("pandas.merge_asof", _merge_asof, "assay"),
        "groups": ("merge_asof in a loop over groupby", _groups, "assay")}
    if find_spec("duckdb"):
        ways["duckdb"] = ("DuckDB, ASOF JOIN", _duckdb, "assay")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    expected = _merge_asof(left, right)["value"].to_numpy()
    for number in range(sizes.join_repeats):
        for name, (_, join, _) in ways.items():
            clock = time.perf_counter()
            joined = join(left, right)
            seconds[name].append(time.perf_counter() - clock)
            if not np.array_equal(joined["value"].to_numpy(), expected, equal_nan=True):
                raise ValueError(f"{name} must give what pandas.merge_asof gives")
        context.say(f"round {number + 1} of {sizes.join_repeats}")
    quantities = {name: quantity(label, "s", seconds[name], None if beside else below(GOAL_SECONDS), beside)
                  for name, (label, _, beside) in ways.items()}
    return {"quantities": quantities,
            "details": {"what": f"{sizes.join_rows:,} rows joined to {sizes.join_rows:,} rows by {KEYS} workloads, "
                                f"values at most {TOLERANCE.seconds} s old; the ways in turn, all values equal",
                        "not_installed": [] if "duckdb" in ways else ["duckdb"]}}


def _tables(rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both sides sorted by time, one row a second and workload on average, times to the millisecond."""
    random = np.random.default_rng(0)

    def times() -> pd.Series:
        span_ms = rows * 1000 // KEYS
        stamps = np.sort(random.integers(0, span_ms, rows)).astype("datetime64[ms]")
        return pd.Series(pd.DatetimeIndex(stamps).tz_localize("UTC"))

    def keys() -> pd.Series:
        return pd.Series([f"workload-{key:02d}" for key in random.integers(0, KEYS, rows)], dtype="str")

    left = pd.DataFrame({"at": times(), "workload": keys(), "row": np.arange(rows)})
    return left, pd.DataFrame({"at": times(), "workload": keys(), "value": random.random(rows)})


def _assay(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return as_of_join(left, right, on="at", by=["workload"], tolerance=TOLERANCE)


def _merge_asof(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.merge_asof(left, right, on="at", by="workload", tolerance=TOLERANCE)


def _groups(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    measured = dict(tuple(right.groupby("workload")))
    parts = [pd.merge_asof(rows, measured[key][["at", "value"]], on="at", tolerance=TOLERANCE)
             for key, rows in left.groupby("workload")]
    return pd.concat(parts).sort_values("row", ignore_index=True)


def _duckdb(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("questions", left)
        connection.register("answers", right)
        return connection.execute(
            "SELECT q.row, CASE WHEN q.at - a.at <= INTERVAL 60 SECOND THEN a.value END AS value FROM questions q "
            "ASOF LEFT JOIN answers a ON q.workload = a.workload AND q.at >= a.at ORDER BY q.row").df()
