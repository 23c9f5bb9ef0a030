"""The kernel's TCP as a sender of as much as it can: what a policy is measured beside.

    python -m systems.congestion.benchmarks.bulk_tcp take PORT
    python -m systems.congestion.benchmarks.bulk_tcp send HOST PORT CONTROL    # of net.ipv4.tcp_available_...
"""

import socket
import sys
import time

_CHUNK = 1 << 16
_PATIENCE_S, _AGAIN_S = 20.0, 0.05


def take(port: int) -> None:
    """Takes what one connection sends, until it ends."""
    with socket.create_server(("", port)) as listening:
        taken, _ = listening.accept()
        with taken:
            buffer = bytearray(_CHUNK)
            while taken.recv_into(buffer):
                pass


def send(host: str, port: int, control: str) -> None:
    """Sends until the other end, or this process, ends. Raises OSError: this kernel has no such congestion control."""
    with _connected(host, port, control) as sending:
        chunk = bytes(_CHUNK)
        while True:
            sending.sendall(chunk)


def _connected(host: str, port: int, control: str) -> socket.socket:
    until = time.monotonic() + _PATIENCE_S
    while True:
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            opened.connect((host, port))
            return opened
        except ConnectionRefusedError:  # the other end is not there yet
            opened.close()
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN_S)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["take", port]:
            take(int(port))
        case ["send", host, port, control]:
            send(host, int(port), control)
        case _:
            sys.exit(str(__doc__))
