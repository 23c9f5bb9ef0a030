"""Holt-Winters against its equations, and on series whose future is known."""

import numpy as np
import pytest

from models.control.contract.setting import checked
from systems.autoscaling.rules.forecast import FORECAST, HoltWinters


def forecasts(series, **settings):
    """Forecast after each observation, 15 s apart."""
    made = HoltWinters(checked(settings, FORECAST, "test"), 1)
    return [float(made(np.array([value]), 15.0 * step)[0]) for step, value in enumerate(series)]


def test_a_constant_is_forecast_as_itself():
    assert forecasts([7.0] * 20) == pytest.approx([7.0] * 20)


def test_growth_is_continued():
    series = 100.0 * 1.05 ** np.arange(200)
    ahead = forecasts(series, damping=1.0, season=0.0, horizon_s=60.0)
    assert ahead[150] == pytest.approx(series[154], rel=1e-3)


def test_a_season_is_known_once_it_has_come_a_few_times():
    phase = (np.arange(400) % 20) / 20  # 300 s
    series = 100.0 * np.exp(np.sin(2 * np.pi * phase))
    settings = {"level": 0.05, "trend": 0.0, "season": 0.5, "season_s": 300.0, "horizon_s": 60.0}
    seasonal = np.array(forecasts(series, **settings))
    plain = np.array(forecasts(series, **{**settings, "season": 0.0}))
    error = np.abs(np.log(seasonal[300:-4] / series[304:]))
    assert error.max() < 0.1
    assert error.mean() < 0.2 * np.abs(np.log(plain[300:-4] / series[304:])).mean()


def test_equations_written_out_for_one_step():
    level, trend, damping = 0.4, 0.3, 0.8
    first, second = forecasts([10.0, 20.0], level=level, trend=trend, damping=damping, season=0.0, horizon_s=30.0)
    before = np.log(10.0)
    after = (1 - level) * before + level * np.log(20.0)
    slope = trend * (after - before)
    assert first == pytest.approx(10.0)
    assert second == pytest.approx(np.exp(after + (damping + damping ** 2) * slope))


def test_missing_observations_are_bridged_and_zero_damping_is_finite():
    made = forecasts([10.0, 12.0, np.nan, np.nan, 20.0], damping=0.0)
    assert np.isfinite(made).all()
    assert np.isnan(forecasts([np.nan])[0])


def test_time_that_passes_faster_smooths_more():
    made = HoltWinters(checked({"level": 0.5, "trend": 0.0, "season": 0.0, "horizon_s": 0.0}, FORECAST, "test"), 1)
    made(np.array([1.0]), 0.0)
    assert float(made(np.array([16.0]), 30.0)[0]) == pytest.approx(16.0 ** 0.75)
