"""A child with all that it starts: one process group, which ends with this process, however that ends."""

import contextlib
import ctypes
import os
import signal
import subprocess
from typing import Any

PATIENCE_S = 5.0


def start_group(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Starts the child as the leader of a group of its own; `options` as of Popen."""
    return subprocess.Popen(command, start_new_session=True, preexec_fn=_die_with_parent, **options)


def _die_with_parent() -> None:
    """Linux: the child gets SIGTERM when this process ends, however it ends (PR_SET_PDEATHSIG = 1)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def stop_group(child: "subprocess.Popen[bytes]") -> None:
    """Ends the whole group: the child and whatever it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=PATIENCE_S)
            if sign is signal.SIGKILL:
                return
