"""A function of the live cluster: each request takes work of a core, of one of the three kinds of Table 4.3.

    python -m systems.shared_cluster.benchmarks.live_function compute 16 0.035 8801

KIND, units of work of the median request (about a millisecond of this machine's core each), cores of this machine that
are one of the cluster's, port on loopback. A request is on one core of the cluster at most: it works in slices and
stands still between them.
"""

import hashlib
import random
import sys
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from recording.loopback import ADDRESS

SPREAD = 0.3  # of the logarithm of a request's work
_ROUNDS, _READS = 2_000, 60_000  # of PBKDF2, and of a table of 64 MiB, in a unit
_SLICE = 2.0  # units
_WAITS = 1.0  # as long as the work, for who waits


def _compute(units: float) -> None:
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", max(1, int(units * _ROUNDS)))


def _memory() -> Callable[[float], None]:
    table = np.random.default_rng(0).random(2**24, dtype=np.float32)
    places = np.random.default_rng(1).integers(0, len(table), 2**22)

    def run(units: float) -> None:
        count = min(int(units * _READS), len(places))
        first = random.randrange(len(places) - count + 1)
        table[places[first:first + count]].sum()

    return run


KINDS: Mapping[str, Callable[[], Callable[[float], None]]] = {
    "compute": lambda: _compute, "memory": _memory, "waiting": lambda: _compute}


def answer(work: Callable[[float], None], units: float, core: float, waits: float) -> None:
    """Does the work of a request at the speed of one core of the cluster, and then waits."""
    took_s, left = 0.0, units
    while left > 0.0:
        began = time.thread_time()
        work(min(left, _SLICE))
        slice_s, left = (time.thread_time() - began) / core, left - _SLICE
        time.sleep((1.0 - core) * slice_s)
        took_s += slice_s
    time.sleep(waits * took_s)


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 256


def main(kind: str, units: str, core: str, port: str) -> None:
    """Serves until it is ended."""
    work, median, one_core = KINDS[kind](), float(units), float(core)
    waits = _WAITS if kind == "waiting" else 0.0

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self) -> None:
            answer(work, median * random.lognormvariate(0.0, SPREAD), one_core, waits)
            self.send_response_only(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing: there are many requests."""

    _Server((ADDRESS, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
