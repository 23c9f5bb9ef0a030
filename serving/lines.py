"""Lines for whoever reads them slowly, or has stopped to: a thread writes them, so that nothing waits for a reader.

A pipe that nobody empties, or a terminal that was stopped (Ctrl-S), takes some kilobytes and then blocks its writer. A
controller that stood still in a print would hold what it had set, whatever happens to the service.
"""

import os
import threading
from contextlib import suppress
from queue import Full, Queue
from typing import Self, TextIO

from feature_store.names import printable

KEPT = 1000  # lines that wait; later ones are left out
ENDS_WITHIN_S = 2.0  # what is left is written in this time, or not


class Lines:
    """Called with each line; what a terminal may take for a command is written as its escape. Raises nothing that
    writing raises: a full disk, a closed pipe, a letter that is missing.

    Args:
        stream: text; where it has a file descriptor, the thread writes to that, past the stream's buffer: at the end of
            the process Python would wait for whoever holds the buffer.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._waiting = stream, Queue[str | None](KEPT)
        self._thread = threading.Thread(target=self._write, name="lines", daemon=True)
        self._thread.start()

    def __call__(self, line: str) -> None:
        """Leaves it to the thread."""
        with suppress(Full):
            self._waiting.put_nowait(printable(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Full):
            self._waiting.put(None, timeout=ENDS_WITHIN_S)
        self._thread.join(ENDS_WITHIN_S)

    def _write(self) -> None:
        descriptor = None
        with suppress(OSError, ValueError, AttributeError):
            descriptor = self._stream.fileno()
        while (line := self._waiting.get()) is not None:
            with suppress(OSError, ValueError):
                if descriptor is None:
                    self._stream.write(f"{line}\n")
                    self._stream.flush()
                    continue
                rest = f"{line}\n".encode(self._stream.encoding or "utf-8", "backslashreplace")
                while rest:
                    rest = rest[os.write(descriptor, rest):]
