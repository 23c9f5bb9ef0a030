"""Calls that are carried out side by side, with one deadline for all of them.

Each has a daemon thread of its own: a call that hangs for longer than the deadline holds up neither the step, nor the
calls of the next one, nor the end of the process. Threads are kept and used again; what hangs is counted, and beyond
MOST_HUNG times the calls of one go nothing more is begun until some of it has ended.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from feature_store.errors import AssayError

Answer = TypeVar("Answer")
MOST_HUNG = 4


class TooLate(Exception):
    """Attributes: answered: how many of the calls ended in time; hanging: how many of earlier goes still do."""

    def __init__(self, answered: int, hanging: int) -> None:
        super().__init__(f"{answered} calls ended in time, {hanging} of before still hang")
        self.answered, self.hanging = answered, hanging


class Within(Generic[Answer]):
    """A call that has so long to end: what hangs for longer, such as a file system, counts as away, and is tried again
    at the next call.
    """

    def __init__(self, call: Callable[[], Answer], within_s: float, what: str) -> None:
        """what: that has to answer, as messages name it."""
        self._call, self._within_s, self._what = call, within_s, what
        self._threads = SideBySide[Answer]()

    def __call__(self) -> Answer:
        """What it gives. Raises AssayError: it did not end in time. Exception: what the call raises."""
        try:
            return self._threads.answers([self._call], self._within_s)[0]
        except TooLate as late:
            before = f"; {late.hanging} earlier looks still wait" if late.hanging else ""
            raise AssayError(f"{self._what} must answer within {self._within_s:g} s, got nothing{before}") from late


class SideBySide(Generic[Answer]):
    """Threads for calls; one go at a time."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[tuple[int, Callable[[], Answer], queue.SimpleQueue[
            tuple[int, Answer | None, Exception | None]]] | None] = queue.SimpleQueue()
        self._lock, self._threads, self._busy = threading.Lock(), 0, 0

    def answers(self, calls: Sequence[Callable[[], Answer]], within_s: float) -> list[Answer]:
        """What they give, in their order.

        Raises:
            TooLate: not all have ended in time.
            Exception: what the first one that failed has raised, at once.
        """
        deadline = time.monotonic() + within_s
        with self._lock:
            if (hanging := self._busy) > MOST_HUNG * len(calls):
                raise TooLate(0, hanging)
            self._busy += len(calls)
            missing = self._busy - self._threads
            self._threads += max(missing, 0)
        self._start(missing, len(calls))
        ended: queue.SimpleQueue[tuple[int, Answer | None, Exception | None]] = queue.SimpleQueue()
        for number, call in enumerate(calls):
            self._todo.put((number, call, ended))
        found: dict[int, Answer] = {}
        while len(found) < len(calls):
            try:
                number, answer, error = ended.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TooLate(len(found), hanging) from None
            if error is not None:
                raise error
            found[number] = answer  # type: ignore[assignment]
        return [found[number] for number in range(len(calls))]

    def _start(self, missing: int, calls: int) -> None:
        """So many more threads; where the host has none to give, nothing of this go is begun."""
        for started in range(missing):
            try:
                threading.Thread(target=self._work, name="query", daemon=True).start()
            except RuntimeError:
                with self._lock:
                    self._busy -= calls
                    self._threads -= missing - started
                raise

    def close(self) -> None:
        """Ends the threads that do nothing; those that hang end with their call."""
        with self._lock:
            for _ in range(self._threads):
                self._todo.put(None)
            self._threads = 0

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            number, call, ended = job
            try:
                outcome: tuple[int, Answer | None, Exception | None] = (number, call(), None)
            except Exception as error:  # whatever it is, the step that asked is told
                outcome = (number, None, error)
            with self._lock:
                self._busy -= 1
            ended.put(outcome)
            del job, call, ended, outcome
