"""Ports on this machine's own loopback address, where everything that the recorder starts listens."""

import contextlib
import random
import socket

ADDRESS = "127.0.0.1"

# Below the ports that Linux gives to outgoing connections (from 32,768 on): one of those could be somebody's own end of
# a connection by the time the server is started that was to listen there.
_PORTS = (15_000, 32_000)


def free_port() -> int:
    """A TCP port that nothing uses at the moment and that no outgoing connection will be given.

    Drawn at random, so that two processes that ask at the same time are not told the same one.
    """
    while True:
        port = random.SystemRandom().randrange(*_PORTS)
        with socket.socket() as server, contextlib.suppress(OSError):
            server.bind((ADDRESS, port))
            return port


def accepts_connections(port: int) -> bool:
    """Whether something accepts TCP connections on `port`."""
    with socket.socket() as client:
        client.settimeout(0.5)
        return client.connect_ex((ADDRESS, port)) == 0
