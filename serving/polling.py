"""A look at what may be away, again and again, in a thread of its own: a registry that hangs delays nobody else."""

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress


def poll_in_thread(look: Callable[[], None], every_s: float, stopped: threading.Event, name: str) -> threading.Thread:
    """Calls `look` every so many seconds until `stopped`, whatever it raises; name: of the thread."""
    def looks() -> None:
        while not stopped.wait(every_s):
            try:
                look()
            except (Exception, SystemExit):  # rich exits where nobody reads its output; the next look may be a stop
                with suppress(Exception):  # nor may anybody read this
                    traceback.print_exc()

    thread = threading.Thread(target=looks, name=name, daemon=True)
    thread.start()
    return thread
