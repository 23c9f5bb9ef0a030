"""How a service calls another one: over HTTP, or in the protocol of Redis or MariaDB, on connections that stay open.

Every call is a span of the caller's (see service.py).
"""

import contextlib
import random
import socket
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from opentelemetry.propagate import inject
from opentelemetry.trace import SpanKind, Tracer

from recording.scaling.protocols import COMPLETE, PARTIAL, READERS, Reader, connect, http_get, mysql_query
from recording.scaling.servers.redis import ScalableRedis
from systems.microservices.application.graph import STORES, TABLE_ROWS

TIMEOUT_S = 5.0
_RECEIVE_BYTES = 1 << 18
_PROTOCOLS = {"redis": "redis", "mariadb": "mysql"}
_STATEMENTS = {
    "rows": "SELECT id, c FROM sbtest1 WHERE id BETWEEN {0} AND {0} + 119",
    "row": "SELECT id, c FROM sbtest1 WHERE id = {0}",
    "write": "UPDATE sbtest1 SET k = k + 1 WHERE id = {0}",
}


class Calls:
    """Calls other services and waits for their answers."""

    def __init__(self, addresses: Mapping[str, str], tracer: Tracer) -> None:
        self._addresses, self._tracer = addresses, tracer
        self._idle: defaultdict[str, list[tuple[socket.socket, Reader]]] = defaultdict(list)
        self._baskets = ScalableRedis().requests(np.random.default_rng(), 1000)

    def call(self, target: str, kind: SpanKind = SpanKind.CLIENT) -> None:
        """Asks for "service.operation". Raises OSError: no answer in time, or a failure."""
        service, operation = target.split(".")
        store = {"db.system.name": service, "db.operation.name": operation} if service in STORES else {}
        with self._tracer.start_as_current_span(operation, kind=kind, attributes={"peer.service": service, **store}):
            self._ask(service, self._request(service, operation))

    def _request(self, service: str, operation: str) -> bytes:
        if service == "redis":
            return random.choice(self._baskets)
        if service == "mariadb":
            return mysql_query(_STATEMENTS[operation].format(random.randrange(1, TABLE_ROWS - 120)))
        headers: dict[str, str] = {}
        inject(headers)
        return http_get(f"/{operation}", *(f"{name}: {value}" for name, value in headers.items()))

    def _ask(self, service: str, request: bytes) -> None:
        protocol = _PROTOCOLS.get(service, "http")
        try:
            client, reader = self._idle[service].pop()
        except IndexError:
            client, reader = connect(protocol, self._addresses[service], TIMEOUT_S), READERS[protocol]()
        with contextlib.ExitStack() as unless_answered:
            unless_answered.callback(client.close)
            client.sendall(request)
            while (status := reader.feed(_some(client, service))) == PARTIAL:
                pass
            unless_answered.pop_all()
        self._idle[service].append((client, reader))
        if status != COMPLETE:
            raise ConnectionError(f"{service} failed")


def _some(client: socket.socket, service: str) -> bytes:
    if not (chunk := client.recv(_RECEIVE_BYTES)):
        raise ConnectionError(f"{service} closed the connection")
    return chunk
