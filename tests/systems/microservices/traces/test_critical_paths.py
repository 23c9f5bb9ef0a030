"""Algorithm 3.1, held against itself written down span by span."""

import numpy as np
import pandas as pd
import pytest

from systems.microservices.traces.critical_paths import ROUNDING_US, critical_paths
from systems.microservices.traces.spans import Spans, link
from tests.systems.microservices.traces.made_traces import random_traces, table


def slow_path(spans: Spans, root: int) -> set[int]:
    """The spans of the path below `root`, by recursion."""
    begun, found = spans.start_us[root] + spans.duration_us[root], {root}
    ends = spans.start_us + spans.duration_us
    for child in sorted(np.flatnonzero(spans.parent == root), key=lambda row: -ends[row]):
        if spans.start_us[child] + spans.duration_us[child] <= begun + ROUNDING_US:
            found |= slow_path(spans, int(child))
            begun = spans.start_us[child]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_paths_are_those_of_the_algorithm_and_add_up_to_the_latency(seed: int) -> None:
    spans = link(random_traces(seed, 40))

    found = critical_paths(spans)

    expected = set().union(*(slow_path(spans, int(root)) for root in spans.roots))
    assert set(np.flatnonzero(found.on_path)) == expected
    lengths = np.bincount(spans.trace, found.own_us)
    assert np.abs(lengths - spans.duration_us[spans.roots]).max() <= ROUNDING_US * len(spans)
    assert not found.moved and not found.background.any()


@pytest.mark.parametrize("seed", range(3))
def test_own_time_is_what_no_child_covers(seed: int) -> None:
    spans = link(random_traces(seed, 15))

    found = critical_paths(spans).self_us

    for row in range(len(spans)):
        covered = np.zeros(int(spans.duration_us[row]), bool)
        for child in np.flatnonzero(spans.parent == row):
            begin = spans.start_us[child] - spans.start_us[row]
            covered[begin: begin + spans.duration_us[child]] = True
        assert found[row] == (~covered).sum()


def test_own_times_hold_whatever_times_other_traces_have() -> None:
    frame = random_traces(0, 1500)
    alone = critical_paths(link(frame)).self_us
    other = table((-2, -1, "a", -2**50, 2**51), (-3, -2, "b", 0, 2**50)).assign(trace=9999)

    found = critical_paths(link(pd.concat([frame, other], ignore_index=True))).self_us

    assert found[:-2].tolist() == alone.tolist() and found[-2:].tolist() == [2**50, 2**50]


def test_the_three_workflows() -> None:
    """u and v beside each other, then i; w in the background: v is the longer one, so that u is off the path."""
    spans = link(table((1, -1, "n", 0, 100), (2, 1, "u", 5, 30), (3, 1, "v", 5, 50), (4, 1, "i", 60, 30),
                       (5, 1, "w", 70, 20, "background")))

    found = critical_paths(spans)

    assert [spans.services[spans.service[row]] for row in np.flatnonzero(found.on_path)] == ["n", "v", "i"]
    assert found.own_us.tolist() == [20, 0, 50, 30, 0]


def test_a_call_that_mostly_outlives_its_caller_is_found_to_be_in_the_background() -> None:
    spans = link(table((1, -1, "n", 0, 100), (2, 1, "u", 5, 30), (3, 1, "w", 50, 500)))

    found = critical_paths(spans)

    assert found.background.tolist() == [False, False, True] and found.own_us.tolist() == [70, 30, 0]


def test_a_clock_that_is_ahead_takes_nothing_off_the_path() -> None:
    """The callee's clock is 40 us ahead: its span, which fits into the call, seems to end after it."""
    spans = link(table((1, -1, "n", 0, 100), (2, 1, "n", 10, 80), (3, 2, "u", 60, 60)))

    found = critical_paths(spans)

    assert found.on_path.all() and found.moved == 1 and not found.background.any()
    assert found.own_us.tolist() == [20, 20, 60]


def test_a_hundred_thousand_spans_take_seconds_at_most() -> None:
    frame = random_traces(0, 3000)
    spans = link(frame)

    found = critical_paths(spans)

    assert len(spans) > 20_000 and found.on_path.sum() > 3000
