"""Settings fitted to recorded windows are those that made the windows; what the windows do not tell stays open."""

import numpy as np
import pandas as pd
import pytest

from systems.autoscaling.service.fit import LEAST_WINDOWS, fit_service
from systems.autoscaling.twin.recorded_law import LawParameters, Points, predict_p99_ms

TRUTH = LawParameters(cpu_ms=20.0, cv2=0.8, fixed_ms=12.0, burst_periods=0.0)
WINDOW_S = 60.0


def recorded(windows: int = 240, quota: float = 1.0, workers: float = 1.0, noise: float = 0.03, busiest: float = 0.9,
             idlest: float = 0.1, seed: int = 3) -> pd.DataFrame:
    """Windows of a service that is the law itself, under a load that comes and goes."""
    random = np.random.default_rng(seed)
    ready = np.where(np.arange(windows) % 80 < 40, 2.0, 3.0)
    share = idlest + (busiest - idlest) * (0.5 + 0.5 * np.sin(np.arange(windows) / 15.0))
    rate = share * ready * min(quota, workers) * 1000.0 / TRUTH.cpu_ms
    points = Points(rate, np.full(windows, quota), np.full(windows, workers), ready, share,
                    np.full(windows, TRUTH.cpu_ms), np.ones(windows), 0.0, WINDOW_S, 10.0)
    p99 = predict_p99_ms(TRUTH, points) * np.exp(noise * random.standard_normal(windows))
    in_flight = rate * 0.05
    frame = pd.DataFrame({
        "window_start": pd.date_range("2026-01-01", periods=windows, freq="60s", tz="UTC"), "rate_rps": rate,
        "p99_ms": p99, "mean_latency_ms": 50.0, "served_share": 1.0,
        "cpu_used_cores": rate * TRUTH.cpu_ms / 1000.0 * np.exp(0.01 * random.standard_normal(windows)),
        "memory_used_mib": 80.0 + 4.0 * in_flight / ready, "cpu_limit_cores": quota, "memory_limit_mib": 256.0,
        "replicas": ready, "ready_replicas": ready})
    frame.attrs["window_s"] = WINDOW_S
    return frame


def test_the_windows_tell_what_made_them() -> None:
    found = fit_service(recorded(), [20.0, 30.0, 25.0])
    assert found.settings["cpu_ms"] == pytest.approx(TRUTH.cpu_ms, rel=0.02)
    assert found.settings["cv2"] == pytest.approx(TRUTH.cv2, rel=0.3)
    assert found.settings["fixed_ms"] == pytest.approx(TRUTH.fixed_ms, rel=0.3)
    assert found.settings["memory_mib"] == pytest.approx(80.0, rel=0.02)
    assert found.settings["request_mib"] == pytest.approx(4.0, rel=0.1)
    assert found.settings["startup_s"] == 25.0
    assert found.error_p99 is not None and found.error_p99 < 0.06, "windows that were not fitted, noise of 3 %"
    assert set(found.settings) == set(found.told) and not set(found.told) & set(found.open)


def test_workers_are_told_where_a_limit_leaves_room_for_more_and_another_number_does_not_fit() -> None:
    found = fit_service(recorded(quota=4.0, workers=2.0))
    assert found.settings["workers"] == 2.0
    assert "workers" in fit_service(recorded(quota=0.5, workers=1.0)).open, "half a core cannot tell one from four"


def test_a_load_that_never_changes_tells_the_cost_of_a_request_and_no_more() -> None:
    found = fit_service(recorded(busiest=0.5, idlest=0.45))
    assert set(found.settings) == {"cpu_ms", "memory_mib"} and found.error_p99 is None
    assert "hardly varied" in found.open["cv2"]


@pytest.mark.parametrize(("gone", "opened"), [
    ("p99_ms", "cv2"), ("cpu_used_cores", "cpu_ms"), ("memory_used_mib", "memory_mib"),
    ("mean_latency_ms", "request_mib")])
def test_what_is_not_measured_is_open_and_says_why(gone: str, opened: str) -> None:
    found = fit_service(recorded().drop(columns=gone))
    assert opened not in found.settings and "not measured" in found.open[opened]
    assert fit_service(recorded().assign(**{gone: np.nan})).open.keys() >= {opened}


def test_few_windows_tell_nothing_of_the_law() -> None:
    found = fit_service(recorded(LEAST_WINDOWS - 1))
    assert "cpu_ms" not in found.settings and str(LEAST_WINDOWS) in found.open["cpu_ms"]


def test_windows_without_load_or_replicas_do_not_count() -> None:
    frame = recorded()
    frame.loc[::3, "rate_rps"] = 0.0
    frame.loc[1::3, "ready_replicas"] = np.nan
    found = fit_service(frame)
    assert found.windows == len(frame) // 3 and found.settings["cpu_ms"] == pytest.approx(TRUTH.cpu_ms, rel=0.02)


def test_no_replica_that_came_leaves_its_start_open() -> None:
    assert "no replica came" in fit_service(recorded(), []).open["startup_s"]
    assert "not measured" in fit_service(recorded(), None).open["startup_s"]
    assert fit_service(recorded(), [400.0]).settings["startup_s"] == 89.0, "the longest that a twin knows"
