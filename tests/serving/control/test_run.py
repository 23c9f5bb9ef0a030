"""A fixed rate, or none."""

import math
import signal
import threading

import pytest

from feature_store.errors import InputError
from serving.control.loop import LEAST_S
from serving.control.run import run, stops_on_signals
from tests.serving.control.world import Said, World, keep, loop_of

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.mark.parametrize("every_s", [math.inf, math.nan, 0.0, -1.0])
def test_a_rate_that_is_none_is_refused(tmp_path, every_s):
    world = World()
    before = world.state
    with pytest.raises(InputError, match="every must be a finite number of seconds > 0"):
        run(loop_of(world, tmp_path, Said(keep)), every_s, threading.Event(), lambda record: None, steps=1)
    assert world.state is before


def test_a_reader_that_knows_its_interval_says_when_the_next_step_is_due(tmp_path):
    """A step that is due after an hour, of a reader that asks for it after a hundredth of a second."""
    world, seen = World(interval_s=0.01), []
    loop = loop_of(world, tmp_path, Said(keep))
    assert run(loop, 3600.0, threading.Event(), seen.append, steps=3) == ""
    assert len(seen) == 3 and loop.expect(3600.0) == 0.01
    for unusable in (None, math.nan, math.inf, 0.0, -1.0, 1e300):
        world.interval_s = unusable
        assert loop.expect(3600.0) == 3600.0
    world.interval_s = 1e-320
    assert loop.expect(3600.0) == LEAST_S


def test_it_steps_and_gives_the_lease_back(tmp_path):
    world, seen = World(), []
    assert run(loop_of(world, tmp_path, Said(keep)), 0.001, threading.Event(), seen.append, steps=3) == ""
    assert ([one.number for one in seen], world.holder) == ([0, 1, 2], "")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_also_where_it_comes_while_the_controller_begins_to_wait(number):
    before = {one: signal.getsignal(one) for one in STOPPING}
    try:
        signal.signal(number, signal.SIG_DFL)  # ignored where the tests run under nohup
        stopped = stops_on_signals()
        with stopped._cond:  # as `wait` has it
            signal.raise_signal(number)
            assert stopped.is_set()
        assert stopped.wait(10)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_a_signal_stops_also_where_no_thread_can_be_made(monkeypatch):
    def none(*_):
        raise RuntimeError("can't start new thread")

    before = {one: signal.getsignal(one) for one in STOPPING}
    try:
        stopped = stops_on_signals()
        monkeypatch.setattr("_thread.start_new_thread", none)
        signal.raise_signal(signal.SIGTERM)
        assert stopped.is_set()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_closed_terminal_stops_nothing_where_it_is_ignored():
    """As nohup starts a process."""
    before = {one: signal.getsignal(one) for one in STOPPING}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stopped = stops_on_signals()
        signal.raise_signal(signal.SIGHUP)
        assert not stopped.is_set()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
