"""Writes the output of load generators to log files, each line with the time at which it came.

Load generators print durations, not times of day. One thread reads all of them, so that every
log of a campaign uses one clock, the same that Prometheus stamps its samples with.

    1700000000.123456 <line as printed>
"""

import contextlib
import os
import selectors
import threading
import time
from pathlib import Path
from typing import IO

from feature_store.errors import SourceError

STAMP_DIGITS = 6


def split_stamped(text: str) -> list[tuple[float, str]]:
    """Parses a stamped log into (Unix time in seconds, line); a cut last line is dropped."""
    lines = []
    for raw in text.split("\n")[:-1]:
        stamp, _, line = raw.partition(" ")
        lines.append((float(stamp), line))
    return lines


class LogStamper:
    """Copies pipes to files with a time stamp before each line, in one background thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._added: list[tuple[int, IO[str]]] = []
        self._closing = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="log-stamper", daemon=True)
        self._thread.start()

    def add(self, pipe: int, log: Path) -> None:
        """Copies the readable file descriptor `pipe` (duplicated here) to `log` until it ends.

        Raises:
            SourceError: as `require_alive`.
        """
        self.require_alive()
        with self._lock:
            self._added.append((os.dup(pipe), log.open("a", encoding="utf-8")))
        os.write(self._wake_write, b"+")

    def require_alive(self) -> None:
        """Raises SourceError where a log could not be written: nothing has been copied since."""
        if self._error is not None:
            raise SourceError(f"logs of load generators must be written, got: {self._error}") from self._error

    def close(self) -> None:
        """Ends the thread; everything read so far is in the files."""
        self._closing = True
        os.write(self._wake_write, b"-")
        self._thread.join(5.0)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._selector.close()

    def _run(self) -> None:
        files: dict[int, IO[str]] = {}
        try:
            self._copy_all(files)
        except OSError as error:
            self._error = error
        for pipe, file in files.items():
            with contextlib.suppress(OSError):
                file.close()
            os.close(pipe)

    def _copy_all(self, files: dict[int, IO[str]]) -> None:
        pending: dict[int, str] = {}
        while not self._closing:
            for key, _ in self._selector.select():
                if key.fd == self._wake_read:
                    os.read(self._wake_read, 64)
                    with self._lock:
                        for pipe, file in self._added:
                            files[pipe] = file
                            pending[pipe] = ""
                            self._selector.register(pipe, selectors.EVENT_READ)
                        self._added.clear()
                else:
                    self._copy(key.fd, pending, files)

    def _copy(self, pipe: int, pending: dict[int, str], files: dict[int, IO[str]]) -> None:
        stamp = f"{time.time():.{STAMP_DIGITS}f}"
        chunk = os.read(pipe, 65536)
        if not chunk:
            self._selector.unregister(pipe)
            files.pop(pipe).close()
            pending.pop(pipe)
            os.close(pipe)
            return
        # redis-benchmark redraws its progress with carriage returns: each is a line here.
        text = (pending[pipe] + chunk.decode("utf-8", "replace")).replace("\r", "\n")
        *lines, pending[pipe] = text.split("\n")
        files[pipe].writelines(f"{stamp} {line}\n" for line in lines if line.strip())
        files[pipe].flush()
