"""HAProxy in front of the instances of a service: which of them serve may change while requests come.

Of those that are ready the one with the fewest requests in flight gets the next one. Without one that is ready a
request is answered by 503 at once. An instance that drains gets no further requests, and ends those it has.
"""

import csv
import io
import socket
import time

from feature_store.errors import SourceError
from recording.loopback import ADDRESS, accepts_connections, free_port
from recording.processes import Guard
from recording.tools import ENVIRONMENT

_START_S, _ANSWER_S, _POLL_S = 10.0, 5.0, 0.02
_MOST_CONNECTIONS = 4096
_CONFIGURATION = """
global
  stats socket {socket} mode 600 level admin
  maxconn {most}
  nbthread 1
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout queue 60s
frontend clients
  bind {address}
  default_backend instances
backend instances
  balance leastconn
  server-template slot 0-{last} {host}:1 maxconn {connections} disabled
"""


class Proxy:
    """Runs until the guard ends.

    Attributes:
        address: `host:port` where it listens.
    """

    def __init__(self, guard: Guard, name: str, slots: int, connections: int) -> None:
        """Starts it with no instance behind it.

        Args:
            guard: owns process and folder.
            name: of the service.
            slots: the most instances, numbered from 0.
            connections: the most requests that one of them has at once; others wait in the proxy.

        Raises:
            SourceError: it does not start.
        """
        folder = guard.folder / f"{name}-proxy"
        folder.mkdir()
        port = free_port()
        self.address, self._socket = f"{ADDRESS}:{port}", folder / "admin"
        configuration, log = folder / "haproxy.cfg", folder / "haproxy.log"
        configuration.write_text(_CONFIGURATION.format(socket=self._socket, most=_MOST_CONNECTIONS, host=ADDRESS,
                                                       address=self.address, last=slots - 1, connections=connections))
        running = guard.start(f"{name}-proxy", ["haproxy", "-db", "-f", configuration], output=log,
                              environment=ENVIRONMENT)
        deadline = time.monotonic() + _START_S
        while not (self._socket.exists() and accepts_connections(port)):
            if not running.is_alive() or time.monotonic() > deadline:
                raise SourceError(f"haproxy must listen within {_START_S:g} s, got: "
                                  f"{log.read_text(errors='replace')[-300:]}")
            time.sleep(_POLL_S)

    def serve(self, slot: int, port: int) -> None:
        """The instance on `port` takes requests from now on."""
        self._do(f"set server instances/slot{slot} addr {ADDRESS} port {port}")
        self._do(f"set server instances/slot{slot} state ready")

    def drain(self, slot: int, within_s: float) -> None:
        """Returns once the instance has no requests any more, or after `within_s`; it gets none from then on."""
        self._do(f"set server instances/slot{slot} state drain")
        deadline = time.monotonic() + within_s
        while self.in_flight(slot) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._do(f"set server instances/slot{slot} state maint")

    def in_flight(self, slot: int) -> int:
        """Requests that the instance has now."""
        rows = csv.DictReader(io.StringIO(self._ask("show stat").removeprefix("# ")))
        return next(int(row["scur"]) for row in rows if row["svname"] == f"slot{slot}")

    def _do(self, command: str) -> None:
        # an address that changes is told; anything else that is said is a refusal
        if (answer := self._ask(command).strip()) and "changed" not in answer and "no need" not in answer:
            raise SourceError(f"haproxy must carry out {command!r}, got {answer!r}")

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_ANSWER_S)
            client.connect(str(self._socket))
            client.sendall(f"{command}\n".encode())
            parts = []
            while chunk := client.recv(65536):
                parts.append(chunk)
        return b"".join(parts).decode()
