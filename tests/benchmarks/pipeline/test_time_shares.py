"""Where a run's time goes: the shares add up, and moments with several processes are divided among them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pipeline.assay_run import StepTimes, step_times
from benchmarks.pipeline.time_shares import SHARES, overhead_share, time_shares


def _step(name: str, started: float, began: float, ended: float) -> StepTimes:
    return StepTimes(name, "", started, began, ended, 0.1)


def test_each_kind_of_moment_is_counted() -> None:
    steps = [_step("ingest", 2, 3, 5), _step("validate", 6, 7, 8), _step("register", 8, 9, 12)]
    shares = time_shares(0, 13, steps)
    assert shares == {"work": 2, "great_expectations": 1, "mlflow": 3, "starts_and_imports": 3, "orchestration": 4}
    assert overhead_share(shares) == pytest.approx(11 / 13)


def test_a_start_behind_another_step_s_work_counts_half() -> None:
    shares = time_shares(0, 10, [_step("finetune", 0, 0, 10), _step("finetune", 0, 10, 10)])
    assert shares["work"] == pytest.approx(5)
    assert shares["starts_and_imports"] == pytest.approx(5)


def test_a_run_without_steps_is_all_overhead() -> None:
    assert overhead_share(time_shares(0, 1, [])) == 1


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50), st.floats(0, 50)), max_size=6))
def test_the_shares_add_up_to_the_run(spans: list[tuple[float, float, float]]) -> None:
    steps = [_step("finetune", start, start + lead, start + lead + work) for start, lead, work in spans]
    shares = time_shares(0, 200, steps)
    assert set(shares) == set(SHARES)
    assert sum(shares.values()) == pytest.approx(200)
    assert all(seconds >= 0 for seconds in shares.values())


def test_steps_are_read_from_the_events_of_a_run() -> None:
    events = [{"at": 1.0, "event": "start", "step": "ingest", "shard": ""},
              {"at": 10.0, "event": "end", "step": "ingest", "shard": "", "seconds": 2.0, "startup_s": 3.0,
               "peak_mb": 1000.0},
              {"at": 11.0, "event": "result", "summary": {}}]
    (step,) = step_times(events)
    assert (step.process_started, step.began, step.ended) == (5.0, 8.0, 10.0)
    assert (step.start_seconds, step.seconds) == (3.0, 2.0)
    assert step.peak_gb == pytest.approx(1.048576)
