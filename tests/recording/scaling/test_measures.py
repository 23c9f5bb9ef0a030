"""What a stretch of a trial measured, against numbers worked out by hand."""

import numpy as np
import pytest

from recording.scaling.columns import MEASURED
from recording.scaling.measures import measure, settled_after
from recording.scaling.meters import Sample, between
from recording.scaling.open_loop import ANSWERED, ERROR, TIMED_OUT, Result


def sample(at_s: float, **counters: float) -> Sample:
    values = dict.fromkeys(("server_cpu_s", "generator_cpu_s", "recorder_cpu_s", "machine_cpu_s", "steal_s"), 0.0)
    return Sample(**{"at_s": at_s, **values, "periods": 0, "throttled": 0, "memory_mib": 8.0, **counters})  # type: ignore[arg-type]


def test_use_between_two_samples() -> None:
    before = sample(10.0, server_cpu_s=1.0, machine_cpu_s=100.0, periods=50, throttled=5, memory_mib=10.0)
    after = sample(12.0, server_cpu_s=2.0, generator_cpu_s=0.2, recorder_cpu_s=0.1, machine_cpu_s=102.3, steal_s=0.4,
                   periods=70, throttled=10, memory_mib=14.0)
    use = between(before, after)
    assert use["cpu_cores"] == 0.5 and use["generator_cores"] == pytest.approx(0.1) and use["steal_cores"] == 0.2
    assert use["disturbance_cores"] == pytest.approx(0.5)  # 2.3 s, of which 1.3 s were ours, in 2 s
    assert use["throttled_share"] == 0.25 and use["memory_mib"] == 12.0


def test_a_quiet_machine_has_no_negative_disturbance() -> None:
    assert between(sample(0.0), sample(1.0, server_cpu_s=0.5, machine_cpu_s=0.49))["disturbance_cores"] == 0.0


def test_a_stretch_counts_what_was_due_in_it() -> None:
    # Ten requests a second, 100 ms each, from 0 to 4 s; the one due at 2 s times out, the one at 3 s fails.
    due = np.arange(40) / 10.0
    done, status = due + 0.1, np.full(40, ANSWERED, dtype=np.uint8)
    done[20], status[20], status[30] = np.nan, TIMED_OUT, ERROR
    status[35] = TIMED_OUT  # its answer came, but its client had given up
    result = Result(due=due, noticed=due + 0.002, sent=due + 0.01, done=done, status=status)
    samples = [sample(50.0 + 0.5 * at, server_cpu_s=0.15 * at, machine_cpu_s=0.2 * at) for at in range(9)]
    row = measure(result, samples, 50.0, 2.0, 4.0, cores=0.6, timeout_s=2.0)
    assert set(row) == set(MEASURED)
    assert row["offered_per_s"] == 10.0
    assert row["completed_per_s"] == 9.0  # those done in it: due from 1.9 on, less the two
    assert row["throughput_per_s"] == 8.5
    assert row["latency_p50_ms"] == pytest.approx(100.0)
    assert row["latency_p99_ms"] == pytest.approx(2000.0)  # all three count as the time-out
    assert row["latency_mean_ms"] == pytest.approx((17 * 100 + 3 * 2000) / 20)
    assert (row["timed_out"], row["errors"]) == (2.0, 1.0)
    assert row["backlog"] == 3.0  # the two whose clients wait beyond 4 s, and the one due at 3.9 s
    assert row["cpu_cores"] == pytest.approx(0.3) and row["utilisation"] == pytest.approx(0.5)
    assert row["lateness_p99_ms"] == pytest.approx(2.0)


def test_a_stretch_without_requests_has_no_percentiles() -> None:
    nothing = np.empty(0)
    result = Result(nothing, nothing, nothing, nothing, np.empty(0, dtype=np.uint8))
    row = measure(result, [sample(0.0), sample(1.0)], 0.0, 0.0, 1.0, cores=1.0, timeout_s=2.0)
    assert row["offered_per_s"] == 0.0 and np.isnan(row["latency_p99_ms"]) and np.isnan(row["lateness_p99_ms"])


def test_samples_that_came_late_still_give_a_stretch() -> None:
    due = np.arange(10) / 10.0
    result = Result(due, due, due, due + 0.01, np.zeros(10, dtype=np.uint8))
    samples = [sample(0.0), sample(3.0, server_cpu_s=1.5, machine_cpu_s=1.5)]
    assert measure(result, samples, 0.0, 0.0, 1.0, cores=1.0, timeout_s=1.0)["cpu_cores"] == 0.5


@pytest.mark.parametrize(("latency", "expected"), [
    ([9.0, 5.0, 1.0, 1.1, 0.9, 1.0], 3.0),
    ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 1.0),
    ([1.0, 1.0, 7.0, 1.0, 1.0, 1.0], 4.0),
    ([np.nan, 1.0, 1.0, 1.0, 1.0, 1.0], 2.0),
])
def test_settled_is_when_it_stays_at_its_last_level(latency: list[float], expected: float) -> None:
    assert settled_after(np.arange(1.0, 7.0), np.array(latency)) == expected


def test_what_does_not_settle_is_said() -> None:
    assert np.isnan(settled_after(np.arange(1.0, 6.0), np.array([1.0, 1.0, 1.0, 1.0, 9.0])))
    assert np.isnan(settled_after(np.arange(1.0, 4.0), np.full(3, np.nan)))
