"""An open-loop load generator: requests leave when they are due, whether or not earlier ones were answered.

Why not an existing one: wrk and hey are closed loops (a slow server slows their arrivals, so that they omit the
latencies that matter: "coordinated omission"); wrk2 and vegeta, which are not, have no Debian package and speak
HTTP alone. This one speaks each server's own protocol, on one thread, and says of itself how late it was.

A program of its own: `python -m recording.scaling.open_loop JOB.json`. Times are seconds of CLOCK_MONOTONIC, which all
processes of a machine share. Latency counts from the time at which a request was due, so that waiting for a free
connection is a part of it. A client gives up after `timeout_s`; the server goes on with what it has been sent, as
servers do, and the connection is free again once it has answered. Of several instances the one with the fewest
requests in flight gets the next one (nginx: least_conn; Envoy: LEAST_REQUEST). A server may close a connection that
stands idle: the next request opens it again, and one that met the closing half-way, with no byte of an answer, is sent
once more, as browsers do.
"""

import gc
import json
import math
import resource
import select
import selectors
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from recording.live.counters import CountersFile
from recording.scaling.protocols import COMPLETE, PARTIAL, READERS, Reader, connect

ANSWERED, TIMED_OUT, ERROR = 0, 1, 2
# Longest sleep, s: how often the generator looks for an instance that has come up.
_LOOK_S = 0.05
# How often it writes its counters, s.
_TELL_S = 0.25
_RECEIVE_BYTES = 1 << 18
_CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Target:
    """An instance of the server.

    Attributes:
        address: `host:port` or `unix:PATH`; empty for one that starts later.
        ready_file: for one that starts later: the file that holds its address once it answers.
    """

    address: str
    ready_file: str | None = None


@dataclass(frozen=True)
class Job:
    """What the generator is to do.

    Attributes:
        protocol: key of READERS.
        targets: instances of the server.
        connections: open connections to each instance, the most requests in flight there.
        timeout_s: a client gives up this long after its request was due, s.
        requests: file with the requests to choose from, a JSON list of Latin-1 strings.
        arrivals: NumPy file, when each request is due, s after the start, ascending.
        choices: NumPy file, which of the requests it is.
        start_s: the start, s of CLOCK_MONOTONIC.
        results: NumPy archive to write (see Result).
        counters: file to count in meanwhile (recording/live/counters.py); "" for none.
    """

    protocol: str
    targets: tuple[Target, ...]
    connections: int
    timeout_s: float
    requests: str
    arrivals: str
    choices: str
    start_s: float
    results: str
    counters: str = ""

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> "Job":
        """From JSON."""
        values = json.loads(path.read_text())
        return Job(**{**values, "targets": tuple(Target(**target) for target in values["targets"])})


@dataclass(frozen=True)
class Result:
    """What became of the requests; all [requests].

    Attributes:
        due: when each was due, s after the start.
        noticed: when the generator turned to it, s after the start: `noticed - due` is its own lateness.
        sent: when it left, s after the start; NaN for one that timed out before.
        done: when its answer was whole, s after the start; NaN for none.
        status: ANSWERED, TIMED_OUT or ERROR.
    """

    due: np.ndarray
    noticed: np.ndarray
    sent: np.ndarray
    done: np.ndarray
    status: np.ndarray

    def latency_ms(self, timeout_s: float) -> np.ndarray:
        """From the time at which each was due, ms; what timed out or failed counts `timeout_s`."""
        latency_s = np.where(self.status == ANSWERED, self.done - self.due, timeout_s)
        return 1000.0 * np.minimum(latency_s, timeout_s)


class _Connection:
    """One request at a time to one instance; opened again for the next one where the server has closed it.

    Attributes:
        target: number of the instance.
        request: the last one that was sent on it.
        may_repeat: whether that one may be sent once more, should the server hang up.
    """

    def __init__(self, selector: selectors.BaseSelector, protocol: str, address: str, target: int) -> None:
        self.target, self.request, self.may_repeat = target, -1, False
        self._selector, self._protocol, self._address = selector, protocol, address
        self._open()

    def send(self, request: bytes) -> None:
        """Sends a request. Raises OSError where the server has hung up, or nobody is there any more."""
        if self.reader.closes or self._client.fileno() < 0:
            self.reopen()
        self._client.sendall(request)

    def receive(self) -> int:
        """Reads what there is; PARTIAL, COMPLETE or FAILED. Raises OSError where the server has hung up."""
        chunk = self._client.recv(_RECEIVE_BYTES)
        if not chunk:
            raise ConnectionError("server closed the connection")
        self.may_repeat = False
        return self.reader.feed(chunk)

    def reopen(self) -> None:
        """Makes a new connection in place of this one."""
        self.close()
        self._open()

    def close(self) -> None:
        """Closes it, until something is sent again."""
        if self._client.fileno() >= 0:
            self._selector.unregister(self._client)
            self._client.close()

    def _open(self) -> None:
        self._client = connect(self._protocol, self._address, _CONNECT_TIMEOUT_S)
        self._client.setblocking(True)  # read only when there is something: without a time-out, a system call less
        self._selector.register(self._client, selectors.EVENT_READ, self)
        self.reader: Reader = READERS[self._protocol]()


class OpenLoop:
    """Runs one job."""

    def __init__(self, job: Job, requests: list[bytes], arrivals: np.ndarray, choices: np.ndarray) -> None:
        self._job, self._requests = job, requests
        self._due, self._choices = (arrivals + job.start_s).tolist(), choices.tolist()
        count = len(self._due)
        self._noticed, self._sent, self._done = ([float("nan")] * count for _ in range(3))
        self._status = [TIMED_OUT] * count
        self._counted = bytearray(count)  # whether each is in the counters
        self._overdue = 0  # the first whose client had not given up when that was last looked at
        self._selector = selectors.EpollSelector()
        self._connections: list[_Connection] = []
        self._idle: list[list[_Connection]] = [[] for _ in job.targets]
        self._busy: set[_Connection] = set()
        self._waiting: deque[int] = deque()
        self._turn = 0
        self._counters = CountersFile(Path(job.counters)) if job.counters else None
        self._addresses = [target.address for target in job.targets]
        self._absent = [index for index, address in enumerate(self._addresses) if not address]
        for index, address in enumerate(self._addresses):
            if address:
                self._open(index)

    def run(self) -> Result:
        """Sends everything, then waits for answers until the last request has timed out."""
        try:
            self._run()
        finally:
            for connection in self._connections:
                connection.close()
            self._selector.close()
        return self._result()

    def _run(self) -> None:
        due, following, count = self._due, 0, len(self._due)
        end = (due[-1] if due else time.monotonic()) + self._job.timeout_s
        looked = told = 0.0
        while following < count or self._waiting or self._busy:
            now = time.monotonic()
            if self._absent and now - looked > _LOOK_S:
                self._look()
                looked = now
            while following < count and due[following] <= now:
                self._noticed[following] = now
                self._waiting.append(following)
                following += 1
            self._dispatch(now)
            if self._counters and now - told > _TELL_S:
                self._count_overdue(now)
                self._counters.write(following)
                told = now
            if now > end:
                break
            until = min(due[following] if following < count else end, now + _LOOK_S)
            for connection in self._readable(max(0.0, until - time.monotonic())):
                self._receive(connection)
        if self._counters:
            self._count_overdue(math.inf)
            self._counters.write(following)

    def _readable(self, within_s: float) -> list[_Connection]:
        """Those on which something has come. Waited for is epoll's own descriptor, by select(2): that waits for
        microseconds where epoll waits for milliseconds, which would be lateness, but knows no descriptor above 1023."""
        ready, _, _ = select.select([self._selector.fileno()], [], [], within_s)
        return [key.data for key, _ in self._selector.select(0)] if ready else []

    def _count_overdue(self, now: float) -> None:
        """Counts the requests whose clients have given up, those that a server has and does not answer included."""
        while self._overdue < len(self._due) and now - self._due[self._overdue] > self._job.timeout_s:
            self._count(self._overdue, answered=False)
            self._overdue += 1

    def _count(self, request: int, *, answered: bool) -> None:
        """Counts a request that is over, once, where somebody reads it."""
        if self._counters and not self._counted[request]:
            self._counted[request] = True
            latency_s = time.monotonic() - self._due[request]
            failed = not answered or latency_s > self._job.timeout_s
            self._counters.add(self._job.timeout_s if failed else latency_s, failed=failed)

    def _result(self) -> Result:
        start = self._job.start_s
        times = (np.array(values) - start for values in (self._due, self._noticed, self._sent, self._done))
        due, noticed, sent, done = times
        status = np.array(self._status, dtype=np.uint8)
        status[(status == ANSWERED) & (done - due > self._job.timeout_s)] = TIMED_OUT
        return Result(due, noticed, sent, done, status)

    def _open(self, target: int) -> None:
        for _ in range(self._job.connections):
            connection = _Connection(self._selector, self._job.protocol, self._addresses[target], target)
            self._connections.append(connection)
            self._idle[target].append(connection)

    def _look(self) -> None:
        for index in list(self._absent):
            file = Path(str(self._job.targets[index].ready_file))
            if file.exists():
                self._absent.remove(index)
                self._addresses[index] = file.read_text()
                self._open(index)

    def _dispatch(self, now: float) -> None:
        while self._waiting:
            if now - self._due[self._waiting[0]] > self._job.timeout_s:
                self._waiting.popleft()
                continue
            idle = self._least_busy()
            if not idle:
                return
            connection, request = idle.pop(0), self._waiting.popleft()
            connection.request, connection.may_repeat = request, True
            self._sent[request] = time.monotonic()
            self._send(connection)

    def _send(self, connection: _Connection) -> None:
        """Sends the connection's request."""
        try:
            connection.send(self._requests[self._choices[connection.request]])
            self._busy.add(connection)
        except OSError:
            self._lose(connection)

    def _least_busy(self) -> list[_Connection]:
        """Idle connections of the instance with the fewest requests in flight, of equals in turn."""
        if len(self._idle) == 1:
            return self._idle[0]
        # All instances have as many connections, so the most idle ones mean the fewest requests in flight.
        self._turn += 1
        count = len(self._idle)
        return self._idle[max(range(count), key=lambda one: (len(self._idle[one]), (one + self._turn) % count))]

    def _receive(self, connection: _Connection) -> None:
        if connection not in self._busy:
            connection.close()  # nothing was asked for: the server has closed it
            return
        try:
            status = connection.receive()
        except OSError:
            self._busy.remove(connection)
            self._lose(connection)
            return
        if status != PARTIAL:
            self._busy.remove(connection)
            self._end(connection, ANSWERED if status == COMPLETE else ERROR)
            self._idle[connection.target].append(connection)

    def _end(self, connection: _Connection, status: int) -> None:
        """The connection's request is over."""
        self._status[connection.request] = status
        self._done[connection.request] = time.monotonic()
        self._count(connection.request, answered=status == ANSWERED)

    def _lose(self, connection: _Connection) -> None:
        """The server has hung up: a new connection takes the place of the lost one; its request is sent once more
        where nothing of an answer had come, and has failed otherwise."""
        repeat, connection.may_repeat = connection.may_repeat, False
        if not repeat:
            self._end(connection, ERROR)
        try:
            connection.reopen()
        except OSError:  # whoever started the server notices its end
            if repeat:
                self._end(connection, ERROR)
            return
        if repeat:
            self._send(connection)
        else:
            self._idle[connection.target].append(connection)


def run_job(job: Job) -> Result:
    """Runs a job from its files."""
    requests = [text.encode("latin-1") for text in json.loads(Path(job.requests).read_text())]
    # Nothing here makes cycles, and a collection in the wrong moment would be lateness.
    gc.disable()
    # Many hosts allow 1024 open files until a program asks for more; many instances have more connections.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return OpenLoop(job, requests, np.load(job.arrivals), np.load(job.choices)).run()


def read_result(path: Path) -> Result:
    """What a job has written."""
    with np.load(path) as archive:
        return Result(**{name: archive[name] for name in archive.files})


def main(arguments: list[str]) -> int:
    """Runs the job file that is named."""
    job = Job.read(Path(arguments[0]))
    np.savez(job.results, **vars(run_job(job)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
