"""Cleans up after a recorder that died: the one process that outlives it, and only for a moment.

The recorder starts this file as a program of its own (standard library only, so that it starts
fast and needs no environment) and talks to it through a named pipe. Each line registers or
releases one thing:

    session <id>      a session (process group leader's pid) whose processes must not survive
    group <path>      a control group folder
    folder <path>     a folder of temporary files
    release <line>    the thing registered by <line> is gone

When the last writer is gone, because the recorder ended, crashed or was killed with SIGKILL,
the pipe reports end of file and everything still registered is removed.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def session_members(sessions: set[int]) -> list[int]:
    """Ids of the running processes whose session is in `sessions`."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) in sessions and not is_zombie(int(entry.name)):
                    members.append(int(entry.name))
    return members


def is_zombie(pid: int) -> bool:
    """Whether `pid` has ended and only waits for its parent to collect it (or is gone)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return stat.rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def kill_sessions(sessions: set[int], timeout_s: float = 5.0) -> bool:
    """Sends SIGKILL to every process of `sessions` until none is left (True) or `timeout_s` has passed (False)."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        alive = session_members(sessions)
        if not alive:
            return True
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return False


def remove_group(path: Path, timeout_s: float = 3.0) -> bool:
    """Removes a control group folder; its processes need a moment to leave it after their death.

    Returns:
        Whether it is gone; False after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while path.is_dir():
        with contextlib.suppress(OSError):
            path.rmdir()
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def sweep(lines: set[str]) -> None:
    """Removes everything that `lines` register: sessions first, then groups, then folders."""
    parts = [line.partition(" ") for line in lines]
    kill_sessions({int(value) for verb, _, value in parts if verb == "session" and value.isdigit()})
    # Deepest first: a control group cannot be removed while it has children.
    for path in sorted((value for verb, _, value in parts if verb == "group"), key=len, reverse=True):
        remove_group(Path(path))
    for path in (value for verb, _, value in parts if verb == "folder"):
        shutil.rmtree(path, ignore_errors=True)


def read_registrations(pipe: int, registered: set[str]) -> None:
    """Applies the lines of `pipe` to `registered` until end of file."""
    pending = b""
    while chunk := os.read(pipe, 65536):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in (raw.decode() for raw in lines):
            if line.startswith("release "):
                registered.discard(line.removeprefix("release "))
            else:
                registered.add(line)


def main(path: Path, pipe: int) -> None:
    """Reads `pipe`, the named pipe at `path`, until its last writer is gone, then sweeps."""
    registered: set[str] = set()
    read_registrations(pipe, registered)
    # A child forked just before the recorder's death may still be about to register itself: once the
    # pipe has no name nobody else can open it, and the second read waits for those who already had.
    with contextlib.suppress(OSError):
        path.unlink()
    read_registrations(pipe, registered)
    sweep(registered)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
