"""Real functions in control groups: what a front tells of them, and that the loads ask for what they say."""

import json
import os

import numpy as np
import pandas as pd
import pytest
import torch

from feature_store.errors import InputError
from recording.control_groups import find_hierarchy
from recording.live.counters import BOUNDS_S, Counts
from recording.processes import Guard
from recording.scaling.open_loop import ANSWERED
from systems.shared_cluster.benchmarks.live import rates_of
from systems.shared_cluster.benchmarks.live_cluster import NAMES, Cluster, told
from systems.shared_cluster.environment import ENVIRONMENT


def counted(arrived: int, failed: int, *places: int) -> Counts:
    buckets = np.bincount(places, minlength=len(BOUNDS_S) + 1)
    return Counts(arrived, failed, buckets.tolist(), 0.0)


def test_a_front_tells_of_the_time_between_two_looks_alone() -> None:
    """Ninety-nine of the hundred requests of five seconds were as quick as bucket 20, one as slow as bucket 40."""
    before = counted(30, 2, *[60] * 28)
    after = counted(140, 3, *[60] * 28, *[20] * 98, 40, 40)
    found = told((10.0, before, 4.0), (15.0, after, 5.5))
    assert found == pytest.approx({"rate_rps": 22.0, "served_rps": 99 / 5, "used_cores": 0.3,
                                   "latency_ms": 1e3 * BOUNDS_S[40]})
    quick = told((10.0, before, 4.0), (15.0, counted(140, 2, *[60] * 28, *[20] * 99, 40), 5.5))
    assert quick["latency_ms"] == pytest.approx(1e3 * BOUNDS_S[20])


def test_no_latency_is_told_where_nothing_is_over() -> None:
    found = told((0.0, counted(0, 0), 0.0), (2.0, counted(8, 0), 1.0))
    assert found == {"rate_rps": 4.0, "served_rps": 0.0, "used_cores": 0.5}
    assert told((2.0, counted(8, 0), 1.0), (2.0, counted(8, 0), 1.0)) == {}, "one moment is no time"


def test_all_functions_together_need_what_is_said_and_each_another_share_of_it() -> None:
    work_s = np.linspace(0.004, 0.03, len(NAMES))
    busy = [0.5] * 30 + [1.2] * 30
    rates = rates_of(3, busy, 1.7, work_s)
    assert np.allclose((rates * work_s).sum(axis=1), 1.7 * np.array(busy))
    shares = rates * work_s / (1.7 * np.array(busy)[:, None])
    assert (shares.max(axis=0) / shares.min(axis=0) > 1.5).all()
    assert np.array_equal(rates, rates_of(3, busy, 1.7, work_s))
    assert not np.allclose(rates, rates_of(4, busy, 1.7, work_s))


def small(cores: float) -> torch.Tensor:
    """Objectives of a cluster of so many cores."""
    telemetry = pd.DataFrame({"rate_rps": [40.0, 50.0] * 20, "window_s": 10.0})
    return ENVIRONMENT.twin(telemetry, {"cluster_cores": cores}, {}).draw("train", 4, 8, 0).relaxed


def test_a_function_that_cannot_have_a_whole_core_is_promised_no_more_than_twice_its_share_gives() -> None:
    assert torch.equal(small(48.0), small(6.0))
    assert torch.allclose(small(3.0), 2.0 * small(6.0)), "a quarter of a core each, so half of one at most"
    with pytest.raises(InputError, match=r"cluster_cores: expected 0\.125 to 64 for each of 12 functions, got 1\.4"):
        small(1.4)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or find_hierarchy().cpu is None, reason="control groups may not be written here")
def test_real_functions_are_limited_loaded_and_told_of() -> None:
    """Two intervals of ten requests a second each, one function with far too few cores for them."""
    with Guard() as guard:
        cluster = Cluster(guard, 2.0)
        cluster.limit(0.5)
        starved = NAMES.index("compute-27")
        cluster._groups.set_quota(NAMES[starved], 0.02)
        rates = np.full((2, len(NAMES)), 4.0)
        results, sampled = cluster.play(rates, 1, [100.0] * len(NAMES))
        said = {name: json.loads((cluster.status / f"{name}.json").read_text()) for name in NAMES}
    assert sampled.shape == (20, 2 * len(NAMES))
    assert sampled[:, starved] == pytest.approx(0.02) and sampled[:, (starved + 1) % len(NAMES)] == pytest.approx(0.5)
    used = sampled[:, len(NAMES):].mean(axis=0)
    assert used[starved] < 0.04 < used[NAMES.index("compute-18")]
    assert said["compute-27"]["latency_ms"] > 10 * said["compute-8"]["latency_ms"]
    assert all(2.0 < one["rate_rps"] < 7.0 and one["most_latency_ms"] == 100.0 for one in said.values())
    answered = [(one.status == ANSWERED).mean() for one in results]
    assert answered[starved] < 0.9 and answered[NAMES.index("waiting-8")] == 1.0
    cpu = find_hierarchy().cpu
    assert cpu is not None and not {*cluster.groups} & {path.name for path in cpu.iterdir()}, "nothing is left behind"
