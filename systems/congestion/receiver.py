"""The other end of a sender (sender.py): sends the first bytes of each packet back at once.

    python -m systems.congestion.receiver --bind 0.0.0.0:9000

What is no longer than an answer gets none: else two receivers, of which somebody forges the address of one to the
other, would answer each other for ever.
"""

import argparse
import socket
import sys
from contextlib import suppress

ACK_BYTES = 24  # what comes back of a packet: which sender, which packet, when it was sent


def address(text: str) -> tuple[str, int]:
    """HOST:PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"expected HOST:PORT, got {text!r}")
    return host, int(port)


def serve(listening: socket.socket) -> None:
    """Answers until the socket is closed. A packet that cannot be answered counts as lost, as its answer might be."""
    buffer = bytearray(65536)
    view = memoryview(buffer)
    while True:
        try:
            size, sender = listening.recvfrom_into(buffer)
        except OSError:
            if listening.fileno() < 0:  # closed
                return
            continue  # of an earlier answer, to a sender that has gone
        if size > ACK_BYTES:
            with suppress(OSError):  # no way to the sender, or none that is allowed; a port 0
                listening.sendto(view[:ACK_BYTES], sender)


def main(arguments: list[str] | None = None) -> int:
    """Runs until it is stopped. Exit codes: 0 stopped, 2 bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bind", type=address, default=("127.0.0.1", 9000), help="HOST:PORT; default: 127.0.0.1:9000")
    host, port = parser.parse_args(arguments).bind
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        try:
            listening.bind((host, port))
        except OSError as error:
            print(f"--bind must be a free address of this host, got {host}:{port}: {error}", file=sys.stderr)
            return 2
        try:
            serve(listening)
        except KeyboardInterrupt:
            print("stopped: packets are no longer answered", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
