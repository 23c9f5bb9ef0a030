"""How a process ends with its parent, and how SIGTERM ends a block of code so that its clean-up runs."""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with_parent(number: int = signal.SIGTERM, parent: int | None = None) -> None:
    """Linux: the calling process gets this signal when its parent ends, however that ends.

    Args:
        parent: number of the parent process, where it may have ended before this call: the signal comes at once then.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """SIGTERM ends the block as SystemExit(143), so that everything is cleaned up as after Ctrl-C.

    The first SIGTERM alone: one that comes while the block cleans up is ignored, because supervisors repeat it, and
    clean-up that is cut short leaves behind what it was there for. Ctrl-C and SIGKILL still end it. Outside of the main
    thread, which alone handles signals in Python, the block runs as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        # No SIG_IGN: a program that the clean-up starts would inherit it.
        signal.signal(signal.SIGTERM, lambda *_: None)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
