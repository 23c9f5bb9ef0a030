"""Ports on this machine's own loopback address, where everything that the recorder starts listens."""

import socket

ADDRESS = "127.0.0.1"


def free_port() -> int:
    """A TCP port that nothing listens on at the moment."""
    with socket.socket() as server:
        server.bind((ADDRESS, 0))
        return int(server.getsockname()[1])


def accepts_connections(port: int) -> bool:
    """Whether something accepts TCP connections on `port`."""
    with socket.socket() as client:
        client.settimeout(0.5)
        return client.connect_ex((ADDRESS, port)) == 0
