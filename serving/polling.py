"""A look at what may be away, again and again, in a thread of its own: a registry that hangs delays nobody else."""

import threading
from collections.abc import Callable


def poll_in_thread(look: Callable[[], None], every_s: float, stopped: threading.Event, name: str) -> threading.Thread:
    """Calls `look`, which raises nothing, every so many seconds until `stopped`; name: of the thread."""
    def looks() -> None:
        while not stopped.wait(every_s):
            look()

    thread = threading.Thread(target=looks, name=name, daemon=True)
    thread.start()
    return thread
