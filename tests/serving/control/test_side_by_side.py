"""Calls side by side, with one deadline for all."""

import threading
import time

import pytest

from serving.control.side_by_side import MOST_HUNG, SideBySide, TooLate


def _query_threads(before=frozenset()):
    return {thread for thread in threading.enumerate() if thread.name == "query"} - before


def test_answers_come_in_the_order_of_the_calls_from_threads_that_are_used_again():
    threads, before = SideBySide[int](), _query_threads()
    for _ in range(5):
        barrier = threading.Barrier(12, timeout=10)  # all at once, or never
        calls = [lambda number=number, barrier=barrier: barrier.wait() * 0 + number for number in range(12)]
        assert threads.answers(calls, 10.0) == list(range(12))
    assert len(_query_threads(before)) == 12
    threads.close()


def test_what_one_raises_is_raised_without_waiting_for_the_others():
    threads, end = SideBySide[None](), threading.Event()

    def fails():
        raise KeyError("x")

    began = time.monotonic()
    with pytest.raises(KeyError):
        threads.answers([end.wait, fails], 30.0)
    assert time.monotonic() - began < 10.0
    end.set()
    threads.close()


def test_what_hangs_holds_up_nothing_else_and_is_not_piled_up():
    threads, end, before = SideBySide[bool](), threading.Event(), _query_threads()
    for _ in range(MOST_HUNG + 5):
        with pytest.raises(TooLate):
            threads.answers([end.wait], 0.01)
    assert len(_query_threads(before)) == MOST_HUNG + 1
    end.set()
    deadline = time.monotonic() + 10.0
    while True:
        try:
            assert threads.answers([lambda: True], 5.0) == [True]
            break
        except TooLate:
            assert time.monotonic() < deadline
    threads.close()
    while _query_threads(before):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_host_without_threads_to_give_is_asked_again(monkeypatch):
    """What was not begun does not count as hanging."""
    side = SideBySide()
    start = threading.Thread.start

    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    for _ in range(20):
        with pytest.raises(RuntimeError):
            side.answers([lambda: 1, lambda: 2], 1.0)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert side.answers([lambda: 1, lambda: 2], 5.0) == [1, 2]
    side.close()
