"""From a recorded data set to the parameters that the environment varies."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from systems.autoscaling.simulator.applications import generate
from systems.autoscaling.twin.recorded_applications import (
    fit_campaign,
    halves,
    law_of,
    memory_line,
    read_points,
    recorded_applications,
)
from tests.systems.autoscaling.made_campaign import LOADS, TRUTHS, write_campaign


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return write_campaign(tmp_path)


def test_parameters_are_those_that_made_the_data_and_the_environment_takes_them(campaign: Path, tmp_path: Path) -> None:
    content = fit_campaign(campaign)
    file = tmp_path / "made.json"
    file.write_text(json.dumps(content))
    nginx, redis = recorded_applications(file)
    for found, truth in ((nginx, TRUTHS["nginx"]), (redis, TRUTHS["redis"])):
        assert found["cpu_ms"] == pytest.approx(truth.cpu_ms, rel=0.02)
        assert found["cv2"] == pytest.approx(truth.cv2, rel=0.1)
        assert found["fixed_ms"] == pytest.approx(truth.fixed_ms, rel=0.1)
        assert (found["memory_mib"], found["request_mib"]) == (pytest.approx(40.0), pytest.approx(0.5))
        assert law_of(found).contention == found["contention"] == pytest.approx(truth.contention, abs=0.05)
    assert (nginx["startup_s"], nginx["warm_up_s"], redis["startup_s"]) == (0.2, 1.0, 1.0)
    varied = generate(40, seed=1, recorded=[nginx, redis])
    assert bool((varied.cpu_s > 0).all()) and len(varied) == 40


def test_halves_are_disjoint_whole_and_alike() -> None:
    load = np.repeat(LOADS, 6)
    first, second = halves(load, seed=3)
    assert sorted([*first, *second]) == list(range(len(load)))
    counts = [np.unique(load[half], return_counts=True)[1] for half in (first, second)]
    assert len(first) == len(second) and (np.abs(counts[0] - counts[1]) == 0).all()
    assert not np.array_equal(halves(load, seed=4)[0], first)


def test_memory_never_shrinks_with_requests() -> None:
    points = pd.DataFrame({"instances": [1.0, 1.0, 1.0], "in_flight": [0.0, 1.0, 2.0], "memory_mib": [9.0, 8.0, 7.0]})
    at_rest, a_request = memory_line(points)
    assert a_request == 0.0 and at_rest == pytest.approx(8.0)


def test_data_that_are_missing_are_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="assay record --task autoscaling"):
        read_points(tmp_path)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="JSON with `applications`"):
        recorded_applications(tmp_path / "x.json")
