"""A lease on a target of this host: a file that the kernel unlocks when its holder ends, however it ends."""

import json
import os
from pathlib import Path

from filelock import Timeout

from feature_store.file_lock import file_lock
from feature_store.whole_files import read_regular
from serving.actuators.actuator import ActuatorError

_MOST_BYTES = 10_000


class FileLease:
    """Among the controllers that name the same file, one has it.

    Args:
        path: the file; made where missing, with its folder, and never removed.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, file_lock(path)
        self._holder, self._inode = "", 0

    def acquire(self, holder: str) -> str:
        """Takes or renews it: "" where `holder` has it, else who does.

        Raises:
            ActuatorError: the file cannot be locked.
        """
        if self.is_held():
            return "" if holder == self._holder else self._told()
        self._lock.release()  # where the file was removed: whoever comes next would lock another one
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
        except Timeout:
            return self._told()
        except OSError as error:
            raise ActuatorError("forbidden", f"the lease must be a file that can be locked, got {error}") from error
        self._holder, self._inode = holder, self._path.stat().st_ino
        self._tell(json.dumps({"holder": holder, "pid": os.getpid()}))
        return ""

    def is_held(self) -> bool:
        """Whether this object has it."""
        try:
            return bool(self._lock.is_locked and self._path.stat().st_ino == self._inode)
        except OSError:
            return False

    def is_gone(self) -> bool:
        """Whether its file was removed, and nobody had it since."""
        return not os.path.lexists(self._path)

    def release(self, holder: str) -> None:
        """Gives it back, where `holder` has it."""
        if holder != self._holder:
            return
        if self.is_held():
            self._tell("")
        self._lock.release()
        self._holder = ""

    def _tell(self, text: str) -> None:
        """Leaves a name for whoever comes second; without one it is still the lock that counts."""
        try:
            self._path.write_text(text)
        except OSError:  # a full disk
            return

    def _told(self) -> str:
        try:
            written = json.loads(read_regular(self._path, _MOST_BYTES))
            return f"{written['holder']} (process {written['pid']})"
        except (OSError, ValueError, TypeError, KeyError):
            return "another controller"
