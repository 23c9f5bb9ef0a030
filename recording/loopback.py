"""Ports on this machine's own loopback address, where everything that the recorder starts listens."""

import contextlib
import random
import socket
from pathlib import Path

ADDRESS = "127.0.0.1"

# Below the ports that Linux gives to outgoing connections (from 32,768 on): one of those could be somebody's own end of
# a connection by the time the server is started that was to listen there.
_PORTS = (15_000, 32_000)
_given: set[int] = set()


def free_port() -> int:
    """A TCP port that nothing uses at the moment and that no outgoing connection will be given.

    Drawn at random, so that two processes that ask at the same time are hardly told the same one; a process is told
    each but once, for of forty that are drawn before anything listens two are equal in one of twenty cases.
    """
    while True:
        port = random.SystemRandom().randrange(*_PORTS)
        if port in _given and len(_given) < (_PORTS[1] - _PORTS[0]) // 2:
            continue
        _given.add(port)
        with socket.socket() as server, contextlib.suppress(OSError):
            server.bind((ADDRESS, port))
            return port


def accepts_connections(at: int | Path) -> bool:
    """Whether something accepts connections on a TCP port, or on the socket at a path."""
    family, address = (socket.AF_UNIX, str(at)) if isinstance(at, Path) else (socket.AF_INET, (ADDRESS, at))
    with socket.socket(family) as client:
        client.settimeout(0.5)
        return client.connect_ex(address) == 0
