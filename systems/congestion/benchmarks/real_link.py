"""A link between two network namespaces that real packets go over (relay.py), and processes at its ends.

    with real_link(Path(bits_s=8e6, delay_s=0.02, queue_packets=50)) as link:
        receiver = link.start("receiver", [...])
        sender = link.start("sender", [...])
        ...
        report = link.report()

All that was started ends with the block, and with the process that it was started in, also where that one is killed.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.isolation import ROOT
from feature_store.errors import AssayError
from feature_store.process_end import end_with_parent
from systems.congestion.benchmarks.relay import Path

ENDS = ("sender", "receiver")
_GRACE_S = 5.0
_NICE = -10  # packets are real time: whoever sends or takes them goes before what else runs here
_LIBC = ctypes.CDLL(None, use_errno=True)
Numbers = NDArray[np.float64]


class Flow:
    """What became of one flow's packets.

    Attributes:
        at_s, wait_s, size: (P,) of each packet: when it came to the link, how long it waited there (DROPPED or LOST),
            its bytes.
    """

    def __init__(self, rows: Sequence[Sequence[float]]) -> None:
        self.at_s, self.wait_s, self.size = np.asarray(rows, dtype=np.float64).reshape(-1, 3).T

    def between(self, begin_s: float, end_s: float) -> "Flow":
        """Those that came in that time."""
        return Flow(np.stack([self.at_s, self.wait_s, self.size], axis=1)[
            (self.at_s >= begin_s) & (self.at_s < end_s)])  # type: ignore[arg-type]

    @property
    def arrives(self) -> NDArray[np.bool_]:
        """(P,) whether it got over the link."""
        return np.asarray(self.wait_s >= 0)


class Report:
    """What the relay has seen until `now_s`: flows by the port that their packets go to.

    Attributes:
        late_s: how much later than due each packet was handed over.
        longest_bytes: of all packets.
        refused: packets that an end did not take.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.now_s: float = told["now_s"]
        self.flows = {int(port): Flow(rows) for port, rows in told["flows"].items()}
        self.late_s: Numbers = np.asarray(told["late_s"])
        self.longest_bytes: int = told["longest_bytes"]
        self.refused: int = told["refused"]


class RealLink:
    """See `real_link`."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self._namespaces: dict[str, int] = {}

    def open(self, path: Path) -> None:
        """Starts the relay. Raises AssayError: this process may not make a link."""
        self._relay = _process(["-m", "systems.congestion.benchmarks.relay"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
        self._started.append(self._relay)
        said = self._said(json.dumps(asdict(path)))
        if "failed" in said:
            raise AssayError(f"link must have network namespaces and /dev/net/tun, got {said['failed']}; run as root")
        self.real_time: bool = said["real_time"]
        self._namespaces = {end: os.open(f"/proc/{self._relay.pid}/fd/{number}", os.O_RDONLY)
                            for end, number in zip(ENDS, said["namespaces"], strict=True)}

    def start(self, end: str, arguments: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
        """A Python process at one end of the link.

        Args:
            end: one of ENDS.
            arguments: of Python.
            options: of subprocess.Popen.
        """
        started = _process(arguments, self._namespaces[end], **options)
        self._started.append(started)
        return started

    def report(self) -> Report:
        """What was carried until now. Raises AssayError: the relay has ended."""
        return Report(self._said("report"))

    def close(self) -> None:
        """Ends all that was started, the last first."""
        for one in reversed(self._started):
            _end(one)
        for held in self._namespaces.values():
            os.close(held)

    def _said(self, line: str) -> dict[str, Any]:
        asks, answers = self._relay.stdin, self._relay.stdout
        assert asks is not None and answers is not None
        with suppress(BrokenPipeError):
            _tell(asks, line)
        if not (answer := answers.readline()):
            raise AssayError(f"link must be carried by a relay, got one that ended with code {self._relay.wait()}")
        return dict(json.loads(answer))


@contextmanager
def real_link(path: Path) -> Iterator[RealLink]:
    """The link while the block lasts. Raises AssayError: this process may not make one."""
    link = RealLink()
    try:
        link.open(path)
        yield link
    finally:
        link.close()


def _tell(asks: IO[str], line: str) -> None:
    asks.write(line + "\n")
    asks.flush()


def _process(arguments: Sequence[str], namespace: int | None = None, **options: Any) -> "subprocess.Popen[str]":
    parent = os.getpid()

    def enter() -> None:
        end_with_parent(signal.SIGKILL, parent)
        with suppress(OSError):
            os.nice(_NICE)
        if namespace is not None and _LIBC.setns(namespace, 0) != 0:
            raise OSError(ctypes.get_errno(), "namespace cannot be entered")

    # bytecode is not written by a process that is killed
    return subprocess.Popen([sys.executable, *arguments], cwd=options.pop("cwd", ROOT), text=True, preexec_fn=enter,
                            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                                 **options.pop("env", {})},
                            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **options})


def _end(process: "subprocess.Popen[str]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
