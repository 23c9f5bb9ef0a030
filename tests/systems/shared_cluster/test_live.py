"""Real functions in control groups: what a front tells of them, and that the loads ask for what they say."""

import json
import os
import time

import numpy as np
import pytest

from recording.control_groups import find_hierarchy
from recording.live.counters import BOUNDS_S, Counts
from recording.processes import Guard
from recording.scaling.open_loop import ANSWERED
from systems.shared_cluster.benchmarks.live import CORES, rates_of
from systems.shared_cluster.benchmarks.live_cluster import NAMES, Cluster, told
from systems.shared_cluster.benchmarks.live_function import KINDS

STARVED = 0.05  # cores


def counted(arrived: int, failed: int, *places: int) -> Counts:
    buckets = np.bincount(places, minlength=len(BOUNDS_S) + 1)
    return Counts(arrived, failed, buckets.tolist(), 0.0)


def test_a_front_tells_of_the_time_between_two_looks_alone() -> None:
    """Of a hundred requests of five seconds all were as quick as bucket 20 but two, then one, as slow as 40."""
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
    work_s = np.linspace(0.2, 0.8, len(NAMES))
    busy = [0.5] * 30 + [1.2] * 30
    rates = rates_of(3, busy, work_s)
    assert np.allclose((rates * work_s).sum(axis=1), CORES * np.array(busy))
    shares = rates * work_s / (CORES * np.array(busy)[:, None])
    assert (shares.max(axis=0) / shares.min(axis=0) > 1.5).all()
    assert np.array_equal(rates, rates_of(3, busy, work_s))
    assert not np.allclose(rates, rates_of(4, busy, work_s))


@pytest.mark.skipif(os.geteuid() != 0 or find_hierarchy().cpu is None, reason="control groups may not be written here")
def test_real_functions_are_limited_loaded_and_told_of() -> None:
    """Two intervals of two requests a second each on cores that are a tenth of this machine's; one function has less
    than any machine needs for its work."""
    with Guard() as guard:
        cluster = Cluster(guard, 0.1)
        starved = NAMES.index("compute-27")
        cluster.limit(4.0)
        cluster.limit(STARVED, ["compute-27"])
        results, limits, used_cores = cluster.play(np.full((2, len(NAMES)), 2.0), 1, [1000.0] * len(NAMES))
        said = {name: json.loads((cluster.status / f"{name}.json").read_text()) for name in NAMES}
    assert limits.shape == used_cores.shape == (20, len(NAMES))
    assert limits[:, starved] == pytest.approx(STARVED) and limits[:, (starved + 1) % len(NAMES)] == pytest.approx(4.0)
    used = used_cores.mean(axis=0)
    assert used[starved] < 0.08 < used[NAMES.index("compute-18")]
    assert all(0.8 < one["rate_rps"] < 4.0 and one["most_latency_ms"] == 1000.0 for one in said.values())
    took = [np.percentile(one.latency_ms(30.0), 50) for one in results]
    assert took[starved] > 5 * took[NAMES.index("compute-18")], "it queues"
    began = time.thread_time()
    KINDS["compute"]()(8)
    on_a_core_ms = 1e3 * (time.thread_time() - began)
    assert took[NAMES.index("compute-8")] > 5 * on_a_core_ms, "at a tenth of a core, not a whole one"
    assert took[NAMES.index("waiting-27")] > 1.3 * took[NAMES.index("compute-18")]
    assert all((one.status == ANSWERED).all() for one in (results[place] for place in range(len(NAMES))
                                                         if place != starved))
    cpu = find_hierarchy().cpu
    assert cpu is not None and not {*cluster.groups} & {path.name for path in cpu.iterdir()}, "nothing is left behind"
