"""The twin of a workload: what is known of it holds in all variations, and nothing of the judged load is trained on."""

import numpy as np
import pandas as pd
import pytest
import torch

from feature_store.errors import InputError
from systems.autoscaling.environment import ENVIRONMENT
from systems.autoscaling.twin.recorded_applications import recorded_applications
from systems.autoscaling.twin.twin import BEST_EFFORT_MS, minutes


def load(rates: "np.ndarray", window_s: float = 60.0) -> pd.DataFrame:
    return pd.DataFrame({"rate_rps": rates, "window_s": window_s, "window_start": pd.date_range(
        "2026-03-02", periods=len(rates), freq=f"{window_s:g}s", tz="UTC")})


def waves(rows: int = 400) -> "np.ndarray":
    return 200 * (1 + 0.5 * np.sin(np.arange(rows) / 20))


SETTINGS = {"slo_ms": 200.0, "cpu_ms": 8.0, "fixed_ms": 5.0}


def test_settings_hold_in_every_variation_and_the_rest_differs() -> None:
    twin = ENVIRONMENT.twin(load(waves()), SETTINGS, {})
    pool = twin.applications
    assert (pool.slo_s == 0.2).all() and (pool.cpu_s == 0.008).all() and (pool.speed == 1).all()
    assert pool.memory_mib.unique().numel() > 16
    np.testing.assert_allclose(pool.mean_rate[-8:], waves().mean(), rtol=1e-5)  # judged at the level of the telemetry
    trained = pool.mean_rate[:100] / waves().mean()
    assert trained.min() < 0.8 and trained.max() > 1.2


def test_the_earlier_part_trains_and_the_later_third_judges() -> None:
    rates = np.concatenate([np.full(400, 100.0), np.full(200, 300.0)])
    twin = ENVIRONMENT.twin(load(rates), SETTINGS, {})
    trained, judged = (twin.draw(split, 64, 100, 0).rate.mean() for split in ("train", "held_out"))
    assert 80 < trained < 120 and 280 < judged < 320
    numbers = [set(twin.draw(split, 64, 10, 0).numbers.tolist()) for split in ("train", "held_out")]
    assert not numbers[0] & numbers[1]


def test_limits_bound_what_is_set_and_what_it_starts_with() -> None:
    twin = ENVIRONMENT.twin(load(waves()), SETTINGS, {"target_replicas": (2, 4), "target_cpu_limit_cores": (0.5, 1)})
    state = twin.reset(twin.draw("train", 32, 20, 0))
    for wanted in (64.0, 1.0):
        for _ in range(10):
            state, _ = twin.step(state, torch.full((32, 3), wanted))
        seen = twin.observe(state)
        for column, (low, high) in ((2, (2.0, 4.0)), (0, (0.5, 1.0))):
            assert seen[:, column].min() >= low and seen[:, column].max() <= high


def test_without_an_objective_it_is_best_effort() -> None:
    twin = ENVIRONMENT.twin(load(waves()), {"cpu_ms": 8.0}, {})
    slo_s = twin.applications.slo_s
    torch.testing.assert_close(slo_s, torch.full_like(slo_s, BEST_EFFORT_MS / 1e3))


def test_an_impossible_objective_is_one_line() -> None:
    message = r"slo_ms: expected at least \d+.*a whole core without load takes, got 5"
    with pytest.raises(InputError, match=message) as no:
        ENVIRONMENT.twin(load(waves()), {**SETTINGS, "slo_ms": 5.0}, {})
    assert "\n" not in str(no.value)


@pytest.mark.parametrize(("rows", "window_s", "expected"), [(8, 30.0, 4), (5, 60.0, 5), (3, 300.0, 15)])
def test_windows_of_any_length_become_minutes_that_keep_the_requests(rows: int, window_s: float, expected: int) -> None:
    rates = np.arange(1.0, rows + 1)
    found = minutes(load(rates, window_s))
    assert len(found) == expected
    np.testing.assert_allclose(found.sum() * 60, (rates * window_s).sum())


@pytest.mark.parametrize(("rates", "message"), [(np.ones(1), "at least four minutes, got 1"),
                                                (np.zeros(30), "a request at least, got only zeros in 30 minutes")])
def test_a_single_minute_and_zeros_are_refused(rates: "np.ndarray", message: str) -> None:
    with pytest.raises(InputError, match=message):
        ENVIRONMENT.twin(load(rates), {}, {})


def test_a_recorded_server_has_its_fitted_parameters_but_for_what_the_file_gives() -> None:
    recorded = {one["name"]: one for one in recorded_applications()}
    pool = ENVIRONMENT.twin(load(waves()), {"server": "nginx", "slo_ms": 50.0, "memory_mib": 64.0}, {}).applications
    assert float(pool.cpu_s[0]) == pytest.approx(recorded["nginx"]["cpu_ms"] / 1e3)
    assert (pool.memory_mib == 64).all() and pool.workers.unique().numel() > 1
