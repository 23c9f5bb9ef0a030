"""Counters of a load generator while it runs: they only grow, and their percentiles are those of its own record."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from recording.live.counters import BOUNDS_S, CountersFile, Counts
from recording.scaling.open_loop import TIMED_OUT, Job, OpenLoop, Target
from recording.scaling.protocols import http_get
from tests.recording.scaling.tiny_server import TinyServer


def percentile_s(counts: Counts, share: float) -> float:
    """Upper bound of the bucket that holds it."""
    at = int(np.searchsorted(np.cumsum(counts.buckets), share * sum(counts.buckets)))
    return BOUNDS_S[at]


def test_each_latency_is_in_the_bucket_below_whose_bound_it_lies(tmp_path: Path) -> None:
    latencies = np.random.default_rng(0).lognormal(-4.0, 1.5, 5000)
    file = CountersFile(tmp_path / "counters.json")
    for part in np.split(latencies, 5):
        for latency in part:
            file.add(float(latency), failed=False)
        file.write(arrived=5000)
    counts = Counts.read(tmp_path / "counters.json")
    assert (counts.arrived, counts.failed, sum(counts.buckets)) == (5000, 0, 5000)
    assert counts.seconds == pytest.approx(latencies.sum())
    for bound, below in zip(BOUNDS_S, np.cumsum(counts.buckets), strict=False):
        assert below == (latencies <= bound).sum()
    assert percentile_s(counts, 0.99) == pytest.approx(np.percentile(latencies, 99), rel=0.11)


def test_nothing_was_counted_before_the_first_write(tmp_path: Path) -> None:
    assert Counts.read(tmp_path / "none.json") == Counts()


@pytest.mark.parametrize("due", [[0.0, 0.1], [0.0, 0.1, 1.4]], ids=["hangs to the end", "answers late"])
def test_what_a_server_that_hangs_has_in_hand_is_counted_when_its_client_gives_up(
        due: list[float], tmp_path: Path) -> None:
    file, failed, results = tmp_path / "counters.json", set(), []
    with TinyServer(stall_at=0, stall_s=1.2) as server:
        job = Job("http", (Target(server.address),), 4, 0.2, "", "", "", time.monotonic() + 0.05, "", str(file))
        loop = OpenLoop(job, [http_get("/found")], np.array(due), np.zeros(len(due), dtype=int))
        running = threading.Thread(target=lambda: results.append(loop.run()))
        running.start()
        while running.is_alive():
            if server.stalled is None:
                failed.add(Counts.read(file).failed)
            time.sleep(0.02)
    counts = Counts.read(file)
    assert max(failed) > 0 and counts.arrived == sum(counts.buckets) == len(due)
    assert counts.failed == (results[0].status == TIMED_OUT).sum()


def test_a_load_is_counted_while_it_runs(tmp_path: Path) -> None:
    """With failures: of five requests one is for what is missing."""
    file, due = tmp_path / "counters.json", np.arange(100) / 100.0
    with TinyServer() as server:
        job = Job("http", (Target(server.address),), 8, 5.0, "", "", "", time.monotonic() + 0.05, "", str(file))
        choices = (np.arange(100) % 5 == 0).astype(int)
        result = OpenLoop(job, [http_get("/found"), http_get("/missing")], due, choices).run()
    counts = Counts.read(file)
    assert counts.arrived == sum(counts.buckets) == len(result.due) == 100
    assert counts.failed == 20
    assert counts.buckets[-1] == 0
    assert np.cumsum(counts.buckets)[np.searchsorted(BOUNDS_S, 5.0)] == 100
    fast = result.latency_ms(5.0)[choices == 0] / 1000.0
    assert counts.seconds == pytest.approx(fast.sum() + 20 * 5.0, abs=0.05)
