"""The service on a socket: uvicorn, as `assay serve` runs it. Only this module and what it imports need the extra."""

import gc
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn

from feature_store.errors import InputError
from feature_store.written.model import read_written
from serving.predictions.champions import Models
from serving.predictions.extender import Extender, require_known
from serving.predictions.extender_file import ExtenderFile
from serving.predictions.limits import Limits, TimedLoop, TimedProtocol
from serving.predictions.metrics import Metrics
from serving.predictions.node_queries import NodeQueries
from serving.predictions.service import Service
from serving.predictions.tls import Tls

MOST_CONNECTIONS = 512
_ANSWER_S = 20  # for requests in flight when it is to stop


def read_extender(path: Path, models: Models, tell: Callable[[str], None], stopped: threading.Event) -> Extender:
    """A scheduler's extender as its file says; until `stopped` it asks Prometheus, where the file wants it.

    Raises:
        InputError: the file is unusable, or does not fit the models.
    """
    file = read_written(ExtenderFile, path, "extender file")
    require_known(file, models(), str(path))
    if file.prometheus is None:
        return Extender(file)
    queries = NodeQueries(file.prometheus, tell)
    queries.follow(stopped)
    return Extender(file, queries)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. port: 0: any that is free. Raises InputError: there is no such address."""
    sock = None
    try:
        # asyncio switches Nagle's algorithm off (40 ms an answer) only where the protocol is named
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM,
                                                                proto=socket.IPPROTO_TCP)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen()
        return sock
    except (OSError, UnicodeError) as error:
        if sock is not None:
            sock.close()
        raise InputError(f"host and port must be an address of this machine that is free, got {error} "
                         f"({host}:{port})") from error


def run(sock: socket.socket, models: Models, unseen_s: Callable[[], float], most_bytes: int,
        most_a_second: float | None, extender: Extender | None, tls: Tls | None) -> None:
    """Answers until SIGTERM or SIGINT, which uvicorn passes on at the end to whoever handled it before; what is in
    flight then is answered first. See `Metrics` and `Limits`. tls: None: answers in the clear.
    """
    gc.freeze()  # what is loaded stays: no collection needs to look at it while somebody waits
    metrics = Metrics(models, unseen_s)
    if extender is not None and extender.queries is not None:
        metrics.registry.register(extender.queries)
    app = Service(models, Limits(most_bytes, most_a_second), metrics, extender).application()
    uvicorn.Server(uvicorn.Config(
        app, http=TimedProtocol, ws="none", lifespan="off", loop=f"{TimedLoop.__module__}:{TimedLoop.__name__}",
        interface="asgi3", log_config=None, log_level="error", access_log=False, proxy_headers=False,
        server_header=False, ssl_context_factory=None if tls is None else lambda *_: tls.context,
        limit_concurrency=MOST_CONNECTIONS + 1, timeout_graceful_shutdown=_ANSWER_S)).run([sock])
