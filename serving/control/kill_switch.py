"""Why nobody may act: an operator's kill switch, on this host or in the signed ledger.

    STOP             a file in the controller's folder
    STOP-BY-SIGNAL   a file beside it, which SIGUSR1 makes, and the next one removes: a restart does not lift it
    STOP-BY-LEDGER   what was known last of the ledger's entry (`assay stop-acting`), for a restart while it is away
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from feature_store.errors import AssayError
from feature_store.whole_files import sync_folder, write_file
from models.configuration import Configuration
from serving.control.seen_ledger import SeenLedger
from serving.polling import poll_in_thread
from serving.state_folder import StateFolder

STOP_FILE, SIGNAL_FILE, LEDGER_FILE = "STOP", "STOP-BY-SIGNAL", "STOP-BY-LEDGER"


def hold_signal() -> None:
    """From now on SIGUSR1 waits, instead of ending the process, for the `KillSwitch` that is made next."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


class KillSwitch:
    """Why nobody may act, "" where everyone may. Made in the main thread, whose signals it takes."""

    def __init__(self, folder: Path) -> None:
        self._file, self._by_signal = folder / STOP_FILE, folder / SIGNAL_FILE
        self._unwritten = False  # stopped by a signal that no file could be made for
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._toggled)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

    def __call__(self) -> str:
        """The reason, or ""."""
        try:
            if self._unwritten or _is_there(self._by_signal):
                return "kill switch: SIGUSR1"
            return f"kill switch: {self._file.name} in its folder" if _is_there(self._file) else ""
        except OSError as error:  # nobody can say that it is off
            return f"kill switch: {self._file} cannot be read ({error.strerror})"

    def _toggled(self, number: int, frame: object) -> None:
        try:
            on = self._unwritten or _is_there(self._by_signal)
        except OSError:
            on = False  # nobody can say: it stops, also when its folder is back
        self._unwritten = not on  # until it is on the disk; where that is full, this process obeys all the same
        try:
            if on:
                self._by_signal.unlink(missing_ok=True)
            else:
                os.close(os.open(self._by_signal, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
                sync_folder(self._by_signal.parent)
                self._unwritten = False
        except OSError:
            return  # a file that cannot be looked at, or removed, stops


def _is_there(path: Path) -> bool:
    """Raises OSError where nobody can say, also for its folder is away; `os.path.lexists` says no then."""
    try:
        path.lstat()
    except FileNotFoundError:
        path.parent.stat()
        return False
    return True


class LedgerSwitch:
    """Why nobody may act, by the last entry of a ledger that was seen. Threads may share it."""

    def __init__(self, stopped: Callable[[], str], folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins with what a controller in this folder knew last.

        Args:
            stopped: who stopped all acting, "" for nobody, as the ledger says; raises where it cannot be read.
            folder: of this controller alone.
            clock: seconds, never going back.
        """
        self._clock, self._seen_at = clock, clock()
        self._read, self._file = stopped, folder / LEDGER_FILE
        try:
            self._known = self._file.read_text(encoding="utf-8") or "someone"
        except FileNotFoundError:
            self._known = ""
        except (OSError, ValueError) as error:  # until the ledger says
            self._known = f"someone, or not: {self._file.name} cannot be read ({error})"
        self._kept = self._known

    def __call__(self) -> str:
        """The reason, or ""."""
        return by_ledger(self._known)

    @property
    def unseen_s(self) -> float:
        """Seconds since the ledger was looked at last, or since the start: a stop of that time is not known."""
        return self._clock() - self._seen_at

    def poll(self) -> None:
        """Looks once; a ledger that is away, or does not verify, changes nothing."""
        with contextlib.suppress(Exception):
            self._known = self._read()
            self._seen_at = self._clock()
        with contextlib.suppress(Exception):  # a full disk, say: again at the next look
            if self._known and self._known != self._kept:
                write_file(self._file, self._known)
            elif not self._known:
                self._file.unlink(missing_ok=True)
            self._kept = self._known

    def follow(self, every_s: float, stopped: threading.Event) -> threading.Thread:
        """Polls in a thread of its own until `stopped`."""
        return poll_in_thread(self.poll, every_s, stopped, "ledger switch")


def by_ledger(who: str) -> str:
    """The reason of a stop in the ledger; "" where nobody stopped."""
    return f"kill switch: stopped in the ledger by {who}" if who else ""


def stopped_in_ledger(state: Configuration | StateFolder, task: str, workload: str,
                      ledger: SeenLedger | None = None) -> str:
    """Who stopped all acting on a workload, when and why; "": nobody.

    Args:
        ledger: the state folder's, by who looks at it again and again; None: it is looked at for the first time.

    Raises:
        RefusedError: the ledger does not verify, or it was cut or is an older one.
        AssayError: it is away, or knows nothing of the workload.
    """
    ledger = ledger or SeenLedger(state)
    standing = ledger.standings().get((task, workload))
    if standing is None:
        raise AssayError(f"ledger must have entries of {task}, {workload}, got none ({ledger.path})")
    return standing.stopped
