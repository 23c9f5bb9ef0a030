"""Runs a control loop: a step every so many seconds, until it is told to stop.

SIGTERM, SIGINT and SIGHUP (a terminal that was closed) end the controller after the step that it is in.
"""

import _thread
import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable

from feature_store.errors import InputError
from serving.control.control_step import ControlStep
from serving.control.loop import ControlLoop


class _Stopped(threading.Event):
    """Set by a signal's handler, which interrupts the main thread also where that holds the event's lock, in `wait`,
    and would itself wait for it for ever: so a thread wakes who waits.
    """

    told = False

    def is_set(self) -> bool:
        return self.told or super().is_set()

    def tell(self, *_: object) -> None:
        self.told = True
        with contextlib.suppress(RuntimeError):  # no thread can be made: it is seen when the wait is over
            _thread.start_new_thread(self.set, ())


def stops_on_signals() -> threading.Event:
    """Set by SIGTERM, SIGINT and SIGHUP, but for the last where whoever started the process has it ignored (nohup)."""
    stopped = _Stopped()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stopped.tell)
    return stopped


def next_due(due: float, now: float, interval_s: float) -> float:
    """When what was due is due next, s: an interval later, or as many later as have passed. None is made up for."""
    return due + interval_s * max(1, math.ceil((now - due) / interval_s))


def run(loop: ControlLoop, every_s: float, stopped: threading.Event, on_step: Callable[[ControlStep], None],
        steps: int | None = None, give_back: bool = False) -> str:
    """Steps at a fixed rate. Intervals that a long step took up are left out: two steps at once would decide twice on
    the same measurements.

    Args:
        every_s: seconds between the beginnings of two steps, where the reader has no interval of its own.
        stopped: ends it.
        on_step: called with each record.
        steps: ends it after so many; None: never.
        give_back: at the end, sets what was found before the first step.

    Returns:
        What could not be done at the end, "" where all was.

    Raises:
        InputError: every_s is no finite number > 0.
    """
    if not 0 < every_s < math.inf:
        raise InputError(f"every must be a finite number of seconds > 0, got {every_s!r}")
    loop.expect(every_s)
    due, done, failure = time.monotonic(), 0, ""
    try:
        while not stopped.is_set() and (steps is None or done < steps):
            on_step(loop.step())
            done += 1
            now, interval_s = time.monotonic(), loop.expect(every_s)
            due = next_due(due, now, interval_s)
            if steps is None or done < steps:
                stopped.wait(due - now)
    finally:
        failure = loop.close(give_back)
    return failure
