"""The log parsers on text that the load generators really printed (recorded by a campaign)."""

from pathlib import Path

import pytest

from recording.stamped_log import split_stamped
from recording.workloads.base import Interval
from recording.workloads.catalogue import WORKLOADS

LOGS = Path(__file__).with_name("logs")
FILES = {
    "nginx": "wrk.log",
    "search": "wrk.log",
    "redis": "redis-benchmark.log",
    "mysql": "sysbench.log",
    "training": "training.log",
}


def parsed(workload: str) -> list[Interval]:
    return WORKLOADS[workload].parse((LOGS / FILES[workload]).read_text())


def test_every_workload_has_a_recorded_log() -> None:
    assert FILES.keys() == WORKLOADS.keys()


def test_wrk_gives_one_interval_a_burst() -> None:
    (burst,) = parsed("nginx")
    assert burst.end_s == 1795259872.831947
    assert burst.end_s - burst.start_s == pytest.approx(1.008917, abs=1e-6)
    assert (burst.count, burst.mean_latency_ms) == (444, pytest.approx(7.242))


def test_redis_benchmark_gives_one_interval_a_burst_and_none_for_an_unfinished_one() -> None:
    bursts = parsed("redis")
    assert [burst.mean_latency_ms for burst in bursts] == [6.643, 3.295, 6.012]
    assert [burst.count for burst in bursts] == [375, 375, 375]
    assert bursts[1].end_s - bursts[1].start_s == pytest.approx(375 / 2358.49, abs=1e-6)


def test_sysbench_gives_the_intervals_of_each_thread() -> None:
    lines = parsed("mysql")
    assert len(lines) == 7
    assert lines[0] == Interval(pytest.approx(1795259872.451106 - 0.5229), 1795259872.451106, 4, 44.4128)


def test_the_training_loop_gives_mean_step_times() -> None:
    lines = parsed("training")
    assert [line.count for line in lines] == [11, 6, 6, 2, 8, 8]
    assert lines[0].mean_latency_ms == pytest.approx(1000 * 0.278867 / 11)


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_intervals_are_positive_and_in_order(workload: str) -> None:
    intervals = parsed(workload)
    assert all(one.start_s < one.end_s and one.count > 0 and one.mean_latency_ms > 0 for one in intervals)
    assert [one.end_s for one in intervals] == sorted(one.end_s for one in intervals)


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_every_cut_of_a_log_is_parsed(workload: str) -> None:
    """A killed load generator ends its log anywhere."""
    text = (LOGS / FILES[workload]).read_text()
    whole = WORKLOADS[workload].parse(text)
    for end in range(0, len(text), 7):
        part = WORKLOADS[workload].parse(text[:end])
        assert part == whole[: len(part)]


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        ("nginx", "burst requests=0 duration_us=1008917 mean_us=0.0 failed=3"),
        ("nginx", "burst requests=120 duration_us=1008917 mean_us=80.0 failed=120"),
        ("nginx", "unable to connect to 127.0.0.1:1 Connection refused"),
        ("redis", "Could not connect to Redis at 127.0.0.1:1: Connection refused"),
        ("redis", '"1186.71","6.643","0.616","3.831","28.271","42.975","43.007"'),
        ("mysql", "FATAL: mysql_drv_query() returned error 2013"),
        ("training", "steps count=0 seconds=0.25"),
    ],
)
def test_lines_without_a_measurement_give_nothing(workload: str, line: str) -> None:
    assert WORKLOADS[workload].parse(f"1700000000.000000 {line}\n") == []


def test_a_stamped_log_keeps_what_was_printed_and_drops_a_cut_line() -> None:
    assert split_stamped("1.500000 a b\n2.000000  c\n3.0000") == [(1.5, "a b"), (2.0, " c")]
