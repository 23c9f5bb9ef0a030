import json

import numpy as np
import pandas as pd

from feature_store.data_quality import summarise


def test_a_table_is_described_in_numbers(telemetry):
    frame = telemetry(100)
    frame.loc[3:6, "latency_ms"] = np.nan
    quality = summarise(frame, ["latency_ms", "cpu_time"])
    assert (quality.rows, quality.windows, quality.combinations, quality.environments) == (100, 100, 5, ("base",))
    assert quality.first == "2024-01-01T00:00:00+00:00"
    assert quality.last == "2024-01-01T01:39:00+00:00"
    latency = quality.columns[0]
    assert (latency.missing, latency.distinct) == (4, 96)
    assert latency.median == frame.latency_ms.median()
    assert (latency.minimum, latency.maximum) == (frame.latency_ms.min(), frame.latency_ms.max())


def test_windows_shared_by_workloads_count_once(telemetry):
    assert summarise(pd.concat([telemetry(50), telemetry(50, "mysql")]), []).windows == 50


def test_missing_empty_and_text_columns_have_no_numbers_and_are_json(telemetry):
    frame = telemetry(10).assign(cpu_time=np.nan, psi_io_full="x")
    quality = summarise(frame, ["cpu_time", "psi_io_full", "absent"])
    assert [column.missing for column in quality.columns] == [10, 10, 10]
    assert [column.median for column in quality.columns] == [None] * 3
    json.dumps(quality.to_dict(), allow_nan=False)


def test_an_empty_table_and_a_synthetic_order_have_no_time_span(telemetry):
    assert summarise(telemetry(10).iloc[:0], ["cpu_time"]).first is None
    assert summarise(telemetry(10).assign(window_s=0.0), ["cpu_time"]).first is None
    assert summarise(pd.DataFrame(), ["cpu_time"]).rows == 0
