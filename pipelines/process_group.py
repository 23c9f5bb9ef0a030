"""A child with all that it starts: one process group, which ends with this process, however that ends."""

import contextlib
import os
import signal
import subprocess
from typing import Any

from feature_store.process_end import end_with_parent

PATIENCE_S = 5.0


def start_group(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Starts the child as the leader of a group of its own; `options` as of Popen."""
    return subprocess.Popen(command, start_new_session=True, preexec_fn=end_with_parent, **options)


def stop_group(child: "subprocess.Popen[bytes]") -> None:
    """Ends the whole group: the child and whatever it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=PATIENCE_S)
