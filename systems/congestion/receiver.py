"""The other end of a sender (sender.py): sends the first bytes of each packet back at once.

    python -m systems.congestion.receiver --bind 0.0.0.0:9000
"""

import argparse
import socket

ACK_BYTES = 24  # what comes back of a packet: which sender, which packet, when it was sent


def address(text: str) -> tuple[str, int]:
    """HOST:PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"expected HOST:PORT, got {text!r}")
    return host, int(port)


def serve(listening: socket.socket) -> None:
    """Answers until the socket is closed, or nobody listens to the answer any more."""
    buffer = bytearray(65536)
    view = memoryview(buffer)
    while True:
        try:
            size, sender = listening.recvfrom_into(buffer)
            if size >= ACK_BYTES:
                listening.sendto(view[:ACK_BYTES], sender)
        except ConnectionRefusedError:  # an answer to a sender that has gone
            continue
        except OSError:
            return


def main() -> None:
    """Runs until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bind", type=address, default=("127.0.0.1", 9000), help="HOST:PORT; default: 127.0.0.1:9000")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        listening.bind(parser.parse_args().bind)
        serve(listening)


if __name__ == "__main__":
    main()
