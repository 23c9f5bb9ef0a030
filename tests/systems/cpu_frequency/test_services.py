"""The thousand services, and the twin of a recorded one."""

import numpy as np
import pandas as pd
import pytest
import torch

from feature_store.errors import InputError
from models.control.contract.first_steps import check_first_steps
from systems.cpu_frequency.environment import ENVIRONMENT
from systems.cpu_frequency.processors import PROCESSORS


@pytest.mark.parametrize("scenario", ENVIRONMENT.scenarios)
def test_equal_draws_are_equal_and_splits_share_no_service(scenario: str) -> None:
    first, again = (ENVIRONMENT.draw("train", 64, 20, 5, scenario) for _ in range(2))
    other = ENVIRONMENT.draw("held_out", 64, 20, 5, scenario)
    assert torch.equal(first.rate_rps, again.rate_rps) and torch.equal(first.noise, again.noise)
    assert not set(first.work.tolist()) & set(other.work.tolist())
    taken = first.take(torch.tensor([3, 3, 1]))
    assert taken.work.tolist() == first.work[[3, 3, 1]].tolist() and taken.rate_rps.shape[1] == 3


def test_there_are_a_thousand_on_three_processors_and_a_number_is_a_service() -> None:
    every = [ENVIRONMENT.draw(split, count, 4, 0, "", list(range(count)))
             for split, count in (("train", 800), ("held_out", 200))]
    assert len({work for one in every for work in one.work.tolist()}) == 1000
    assert torch.cat([one.processor for one in every]).bincount().tolist() == [334, 333, 333]
    later = ENVIRONMENT.draw("train", 2, 4, 9, "bursts", [7, 7])
    assert later.work.tolist() == [float(every[0].work[7])] * 2 and later.numbers.tolist() == [7, 7]
    most = torch.tensor([float(one.cores) for one in PROCESSORS])
    assert all(bool((one.cores <= most[one.processor]).all()) for one in every)


def test_the_load_is_around_its_mean_and_steady_load_stays() -> None:
    ordinary, steady = (ENVIRONMENT.draw("train", 400, 200, 2, name) for name in ("", "steady"))
    assert bool((steady.rate_rps == steady.rate_rps[0]).all())
    ratio = (ordinary.rate_rps / steady.rate_rps).log()
    assert float(ratio.mean()) == pytest.approx(0.04, abs=0.04) and float(ratio.std()) > 0.2
    bursts = (ENVIRONMENT.draw("train", 400, 200, 2, "bursts").rate_rps / steady.rate_rps).log()
    assert float(bursts.mean()) > float(ratio.mean()) + 0.05


def test_an_unknown_split_or_scenario_is_refused_and_the_contract_is_kept() -> None:
    with pytest.raises(InputError, match="expected train or held_out and one of steady, bursts, got 'test' and ''"):
        ENVIRONMENT.draw("test", 4, 10, 0)
    check_first_steps(ENVIRONMENT)


def telemetry(rows: int, window_s: float) -> pd.DataFrame:
    return pd.DataFrame({"window_start": pd.date_range("2026-01-05", periods=rows, freq="1s", tz="UTC"),
                         "window_s": window_s, "rate_rps": 100.0 + np.arange(rows)})


def test_a_twin_replays_its_load_in_windows_that_last_other_than_a_step() -> None:
    """Windows of 1.7 s beside steps of 1 s; the earlier seven tenths train."""
    twin = ENVIRONMENT.twin(telemetry(100, 1.7), {"processor": "EPYC 7302P", "most_latency_ms": 33.0}, {})
    for split, low, count in (("train", 100.0, 70), ("held_out", 170.0, 30)):
        programs = twin.draw(split, 50, 40, 4)
        for rate in programs.rate_rps.T.numpy() - low:
            expected = (rate[0] + np.floor(np.arange(len(rate)) / 1.7)) % count
            assert rate.tolist() == expected.tolist()
        assert programs.most_latency_ms.tolist() == [33.0] * 50 and set(programs.processor.tolist()) == {2}
    assert twin.controls[0].levels == (1.5, 2.5, 3.0, 3.3)


def test_settings_and_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="at most 14 of E5-2683 v3, got 15"):
        ENVIRONMENT.twin(telemetry(10, 1.0), {"cores": 15.0}, {})
    message = r"expected two or more of EPYC 7302P's levels, 1.5, 2.5, 3, 3.3 GHz, got \[1.6, 2.6\]"
    with pytest.raises(InputError, match=message):
        ENVIRONMENT.twin(telemetry(10, 1.0), {"processor": "EPYC 7302P"}, {"target_frequency_ghz": (1.6, 2.6)})
    with pytest.raises(InputError, match="expected at least 2 windows, got 1"):
        ENVIRONMENT.twin(telemetry(1, 1.0), {}, {})
    narrow = ENVIRONMENT.twin(telemetry(10, 1.0), {}, {"target_frequency_ghz": (1.25, 1.75)})
    assert narrow.controls[0].levels == (1.3, 1.4, 1.5, 1.6, 1.7)
    state = narrow.reset(narrow.draw("train", 3, 5, 0))
    assert state.seen["frequency_ghz"].tolist() == pytest.approx([1.7] * 3), "the base clock is beyond its limits"
