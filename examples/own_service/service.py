"""A small service that no recording knows: each request draws a fractal of random size, and so takes CPU.

    python examples/own_service/service.py 8801

Answers on loopback, with /metrics as a client library of Prometheus writes it.
"""

import random
import statistics
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, Histogram, generate_latest

MEDIAN_S = 0.008  # of CPU for the median request, on any machine
SECONDS = Histogram("http_request_duration_seconds", "Time of a request", ["code"],
                    buckets=(.005, .01, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2, 5))


def draw(rounds: int) -> int:
    """How often a point of the plane runs away."""
    point, gone = 0j, 0
    for _ in range(rounds):
        point = point * point + complex(-0.1, 0.65)
        if abs(point) > 2.0:
            point, gone = 0j, gone + 1
    return gone


def rounds_in(seconds: float) -> int:
    """How many rounds this machine does in so many seconds, by the median of tries within a second."""
    tried, took = 20_000, []
    for _ in range(20):
        begin = time.perf_counter()
        draw(tried)
        took.append(time.perf_counter() - begin)
        time.sleep(0.05)  # beside others, a machine's speed changes from one moment to the next
    return round(tried * seconds / statistics.median(took))


ROUNDS = rounds_in(MEDIAN_S)


class Handler(BaseHTTPRequestHandler):
    """A fractal for every path but /metrics."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers a request."""
        begin, kind = time.perf_counter(), "text/plain"
        if self.path == "/metrics":
            body, kind = generate_latest(), CONTENT_TYPE_LATEST
        else:
            body = str(draw(int(ROUNDS * random.lognormvariate(0.0, 0.5)))).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path != "/metrics":
            SECONDS.labels("200").observe(time.perf_counter() - begin)

    def log_message(self, *_: object) -> None:
        """Says nothing: there are many requests."""


class Server(ThreadingHTTPServer):
    """A thread for each connection."""

    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no news."""


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
