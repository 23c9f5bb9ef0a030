"""Starts and stops the campaign's processes so that none of them can outlive the recorder.

Every process leads a session of its own and registers that session with the reaper before its
program starts, so that Ctrl-C, SIGTERM, an exception and even SIGKILL of the recorder leave
nothing behind (see recording/reaper.py).
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from feature_store.errors import InputError
from recording import reaper

# Account of the servers where the recorder is root: a number that neither Debian nor systemd gives to anybody.
ACCOUNT = 65_530

# Registers the session, joins the control groups, becomes the program. The registration comes first
# and must succeed: a program that nobody would clean up is not started.
_LAUNCHER = """
echo "session $$" >"$1" || exit 125
shift
while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 125; shift; done
shift
exec "$@"
"""


def unprivileged(*folders: Path) -> list[str]:
    """How a server's command begins, so that whoever talks to it cannot act as root; empty where this is not root.

    Every user of this machine reaches a port on loopback, and some servers do for anybody all that their account may.

    Args:
        folders: that the server reads and writes: they become the account's with all that is in them. Neither may the
            recorder write there afterwards nor follow links there, nor may root run what lies there.

    Raises:
        InputError: the account cannot reach them, there is none, or root may not start a program under it.
    """
    if os.geteuid() != 0:
        return []
    try:
        for folder in folders:
            if folder.stat().st_uid != ACCOUNT:
                _hand_over(folder)
    except OSError as error:
        raise InputError(f"account {ACCOUNT} must be there for servers where the recorder is root, got {error}: record "
                         "as an ordinary user in this namespace") from error
    start = ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups", "--no-new-privs"]
    for folder in folders:
        if not _succeeds([*start, "test", "-x", folder]):
            raise InputError(
                f"temporary folder must be open to the account {ACCOUNT}, which servers run under where the recorder "
                f"is root, got {folder}: set TMPDIR to a folder that everybody may enter, and umask to 022")
    return start


def _succeeds(command: list[str | Path]) -> bool:
    """Whether a program under the servers' account, which prints nothing, does. Raises InputError: it did not start."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        failure = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        failure = str(error)
    if failure:
        raise InputError(f"setpriv must start servers under the account {ACCOUNT} where the recorder is root, got "
                         f"{failure!r}: install util-linux and let root change its account (CAP_SETUID, CAP_SETGID), "
                         "or record as an ordinary user")
    return done.returncode == 0


def _hand_over(folder: Path) -> None:
    """The lowest first: root changes nothing in a folder that others can write to by then."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            os.chown(Path(parent, name), ACCOUNT, ACCOUNT, follow_symlinks=False)
        os.chown(parent, ACCOUNT, ACCOUNT)


@dataclass(frozen=True)
class Running:
    """A process that the guard started; it leads its own session."""

    name: str
    process: subprocess.Popen[bytes]

    @property
    def session(self) -> int:
        """Session id, which is the leader's process id."""
        return self.process.pid

    def is_alive(self) -> bool:
        """Whether the leader still runs."""
        return self.process.poll() is None


class Guard:
    """Owns every process, control group and temporary folder of a campaign, through the reaper.

    A context manager: leaving it removes everything that is still registered.
    """

    def __init__(self, scratch: Path | None = None) -> None:
        """Args:
        scratch: parent of the temporary folder; the system's default where None.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="assay-record-", dir=scratch))
        if os.geteuid() == 0:  # servers pass through it to their own folders, nobody else does
            with contextlib.suppress(OSError):  # a namespace without that account: `unprivileged` says so
                os.chown(self.folder, -1, ACCOUNT)
                self.folder.chmod(0o710)
        self._pipe_path = self.folder / "reaper.pipe"
        os.mkfifo(self._pipe_path, mode=0o600)
        # The reaper inherits an open end: were it to open the pipe itself, everything written until then
        # would be lost if the recorder died first.
        reading = os.open(self._pipe_path, os.O_RDONLY | os.O_NONBLOCK)
        self._pipe = os.open(self._pipe_path, os.O_WRONLY)
        os.set_blocking(reading, True)
        try:
            self._reaper = self._start_reaper(reading)
        except OSError:
            os.close(self._pipe)
            shutil.rmtree(self.folder)
            raise
        finally:
            os.close(reading)
        self._running: list[Running] = []
        self.register(f"folder {self.folder}")

    def _start_reaper(self, reading: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, str(self._pipe_path), str(reading)],
            pass_fds=(reading,),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            # It must not hold the recorder's own output open: someone may wait for its end.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, line: str) -> None:
        """Tells the reaper about one thing (`session 12`, `group /path`, `folder /path`)."""
        os.write(self._pipe, f"{line}\n".encode())

    def release(self, line: str) -> None:
        """Tells the reaper that a registered thing is gone."""
        with contextlib.suppress(BrokenPipeError):  # a killed reaper must not keep us from cleaning up
            self.register(f"release {line}")

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        output: Path | int,
        groups: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Running:
        """Starts a program in its own session, inside `groups`.

        Args:
            name: what to call it in messages.
            command: program and arguments.
            output: file for its output and errors, or `subprocess.PIPE` to read them.
            groups: control group folders to join before the program starts.
            environment: variables added to the recorder's own.
            folder: working folder; the guard's folder where None.
        """
        arguments = ["/bin/sh", "-c", _LAUNCHER, "launch", str(self._pipe_path)]
        arguments += [*map(str, groups), "--", *map(str, command)]
        with contextlib.ExitStack() as files:
            target: int | IO[bytes] = (
                files.enter_context(output.open("ab")) if isinstance(output, Path) else output
            )
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
                cwd=folder or self.folder,
            )
        running = Running(name, process)
        self._running.append(running)
        return running

    def call(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        output: Path,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> int | None:
        """Runs a program to its end, for `timeout_s` at most, and returns its exit status (None: too slow)."""
        running = self.start(name, command, output=output, environment=environment)
        try:
            return running.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.stop([running], grace_s=0)

    def stop(self, targets: Sequence[Running], *, grace_s: float) -> None:
        """Ends the sessions of `targets` together: SIGTERM, `grace_s` seconds to comply, then SIGKILL."""
        if grace_s > 0:
            for running in targets:
                with contextlib.suppress(OSError):
                    os.killpg(running.session, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while time.monotonic() < deadline and any(running.is_alive() for running in targets):
                time.sleep(0.02)
        gone = reaper.kill_sessions({running.session for running in targets})
        for running in targets:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(1.0)
            if running.process.stdout is not None:
                running.process.stdout.close()
            if not gone and reaper.session_members({running.session}):
                continue  # it stays registered: the guard's end and the reaper try again
            self.release(f"session {running.session}")
            with contextlib.suppress(ValueError):
                self._running.remove(running)

    def close(self) -> None:
        """Stops everything and waits until the reaper has removed what was registered.

        An interruption of this wait is harmless: the reaper goes on by itself.
        """
        self.stop(list(self._running), grace_s=0)
        os.close(self._pipe)
        self._reaper.wait()
