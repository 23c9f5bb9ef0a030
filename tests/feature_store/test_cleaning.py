"""Cleaning against hand-made cases and a second, brute-force implementation."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.cleaning import clean_combination, latency_per_window, present_span, window_starts
from feature_store.errors import InputError
from feature_store.schema import METRICS

START = 1_700_000_000.0
ARGUMENTS = {"anchor_s": START, "step_s": 1.0, "window_s": 2.0, "warm_up_s": 0.0}
# Latencies are weighted means of a few numbers: nothing but rounding can differ.
RELATIVE = 1e-9


def intervals(*rows: tuple[float, float, float, float]) -> pd.DataFrame:
    """(start, end, count, mean latency) with times relative to START."""
    frame = pd.DataFrame(rows, columns=["start_s", "end_s", "count", "mean_latency_ms"], dtype=float)
    return frame.assign(start_s=frame["start_s"] + START, end_s=frame["end_s"] + START)


def steady(first: float, last: float, latency_ms: float = 5.0) -> pd.DataFrame:
    """One interval a second."""
    return intervals(*((second, second + 1, 10, latency_ms) for second in np.arange(first, last)))


def machine(seconds: int, missing: tuple[int, ...] = ()) -> pd.DataFrame:
    """Each metric rises by 0.01 a second; the value at t covers the second that ends at t."""
    stamps = pd.to_datetime(START + np.arange(1, seconds + 1), unit="s", utc=True)
    frame = pd.DataFrame({name: 0.01 * np.arange(1, seconds + 1) for name in METRICS}, index=stamps)
    frame.loc[[stamps[second - 1] for second in missing], "psi_io_some"] = np.nan
    return frame


def test_a_window_averages_the_seconds_that_lie_in_it() -> None:
    samples = clean_combination(machine(4), {"redis": steady(0, 4)}, **ARGUMENTS)
    assert samples["psi_cpu_some"].tolist() == pytest.approx([0.015, 0.035])
    assert samples["latency_ms"].tolist() == pytest.approx([5.0, 5.0])
    assert [stamp.timestamp() for stamp in samples["window_start"]] == [START, START + 2]
    assert str(samples["window_start"].dt.tz) == "UTC"


def test_only_the_time_in_which_every_workload_is_present_is_kept() -> None:
    samples = clean_combination(machine(12), {"redis": steady(0, 9), "nginx": steady(3, 12)}, **ARGUMENTS)
    assert sorted({stamp.timestamp() - START for stamp in samples["window_start"]}) == [4, 6]
    assert samples.groupby("workload").size().to_dict() == {"nginx": 2, "redis": 2}


def test_the_warm_up_is_cut_from_when_the_last_workload_appeared() -> None:
    arguments = {**ARGUMENTS, "warm_up_s": 4.0}
    samples = clean_combination(machine(12), {"redis": steady(0, 12), "nginx": steady(2, 12)}, **arguments)
    assert samples["window_start"].min().timestamp() == START + 6


def test_a_missing_metric_drops_its_window_for_every_workload() -> None:
    samples = clean_combination(machine(8, missing=(4,)), {"redis": steady(0, 8), "nginx": steady(0, 8)}, **ARGUMENTS)
    assert sorted({stamp.timestamp() - START for stamp in samples["window_start"]}) == [0, 4, 6]


def test_metrics_that_end_early_are_not_filled_in() -> None:
    samples = clean_combination(machine(5), {"redis": steady(0, 8)}, **ARGUMENTS)
    assert len(samples) == 2


def test_a_silent_workload_drops_the_window_for_every_workload() -> None:
    silent = pd.concat([steady(0, 2), steady(4, 8)])
    samples = clean_combination(machine(8), {"redis": silent, "nginx": steady(0, 8)}, **ARGUMENTS)
    assert sorted({stamp.timestamp() - START for stamp in samples["window_start"]}) == [0, 4, 6]


def test_requests_weigh_the_mean_and_a_long_interval_is_shared_out() -> None:
    frame = intervals((0, 1, 30, 1.0), (1, 4, 30, 9.0))
    latency = latency_per_window(frame, np.array([START, START + 2]), 2.0)
    assert latency.tolist() == pytest.approx([(30 * 1.0 + 10 * 9.0) / 40, 9.0])


def test_a_workload_without_log_gives_no_samples() -> None:
    samples = clean_combination(machine(8), {"redis": steady(0, 8), "nginx": intervals()}, **ARGUMENTS)
    assert samples.empty
    assert {"workload", "window_start", "latency_ms", *METRICS} <= set(samples)


def test_workloads_that_never_meet_have_no_common_span() -> None:
    assert present_span({"redis": steady(0, 3), "nginx": steady(4, 8)}) is None


def test_windows_lie_on_the_grid_of_the_anchor() -> None:
    starts = window_starts(START + 0.5, START + 9.9, anchor_s=START - 4, window_s=3.0)
    assert starts.tolist() == [START + 2, START + 5]


@pytest.mark.parametrize("window_s", [0.5, 2.5])
def test_a_window_that_is_no_multiple_of_the_step_is_refused(window_s: float) -> None:
    with pytest.raises(InputError, match="window_s must be a multiple of 1 s"):
        clean_combination(machine(4), {"redis": steady(0, 4)}, **{**ARGUMENTS, "window_s": window_s})


def test_a_missing_column_is_named() -> None:
    with pytest.raises(InputError, match="metrics must have the column psi_io_full"):
        clean_combination(machine(4).drop(columns="psi_io_full"), {"redis": steady(0, 4)}, **ARGUMENTS)
    with pytest.raises(InputError, match=r"intervals must have the column count.*redis"):
        clean_combination(machine(4), {"redis": steady(0, 4).drop(columns="count")}, **ARGUMENTS)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 20), st.floats(0.05, 6), st.integers(1, 1000), st.floats(0.01, 1e4, allow_nan=False)
        ),
        min_size=1,
        max_size=12,
    )
)
def test_latency_per_window_agrees_with_brute_force(rows: list[tuple[float, float, int, float]]) -> None:
    frame = intervals(*((start, start + length, count, latency) for start, length, count, latency in rows))
    starts = START + 2.0 * np.arange(12)
    expected = []
    for window in starts:
        total = weighted = 0.0
        for start, end, count, latency in frame.itertuples(index=False):
            overlap = max(0.0, min(end, window + 2.0) - max(start, window))
            requests = count * overlap / (end - start)
            total += requests
            weighted += requests * latency
        expected.append(weighted / total if total > 0 else np.nan)
    np.testing.assert_allclose(latency_per_window(frame, starts, 2.0), expected, rtol=RELATIVE)
