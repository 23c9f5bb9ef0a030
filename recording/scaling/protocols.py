"""What the load generator says to a server and how it knows that an answer is complete.

Standard library only: the generator is a program of its own that must start fast. Each protocol is a reader
with the state of one answer; `feed` takes bytes as they come and says PARTIAL, COMPLETE or FAILED.
"""

import socket
from typing import Protocol

PARTIAL, COMPLETE, FAILED = 0, 1, 2

# MySQL capability flags (protocol 4.1, secure connection, database on connect, named authentication plugin).
_MYSQL_CAPABILITIES = 0x200 | 0x8000 | 0x8 | 0x80000
_MYSQL_HEADER_BYTES = 4


class Reader(Protocol):
    """Reads one answer after another from one connection.

    Attributes:
        closes: whether the server closes the connection after the answer that has just become whole.
    """

    closes: bool

    def feed(self, chunk: bytes) -> int:
        """PARTIAL until the answer is whole, then COMPLETE or FAILED; the next call begins the next answer."""
        ...


class HttpReader:
    """An HTTP/1.1 answer with a length or in chunks, on a connection that stays open. FAILED: status not 200."""

    def __init__(self) -> None:
        self.closes = False
        self._head = b""
        self._left: int | None = None
        self._tail = b""
        self._status = FAILED

    def feed(self, chunk: bytes) -> int:
        """See Reader."""
        if self._left is None and not self._tail:
            self._head += chunk
            head, separator, chunk = self._head.partition(b"\r\n\r\n")
            if not separator:
                return PARTIAL
            self._begin(head)
        if self._left is not None:
            self._left -= len(chunk)
            return PARTIAL if self._left > 0 else self._finish()
        # The last chunk of a body in chunks is empty; one request at a time, so nothing follows it.
        self._tail = (self._tail + chunk)[-7:]
        return self._finish() if self._tail.endswith(b"\r\n0\r\n\r\n") else PARTIAL

    def _begin(self, head: bytes) -> None:
        lines = head.split(b"\r\n")
        self._status = COMPLETE if lines[0].split(b" ", 2)[1:2] == [b"200"] else FAILED
        headers = dict(line.lower().split(b":", 1) for line in lines[1:] if b":" in line)
        self.closes = b"close" in headers.get(b"connection", b"")
        if b"chunked" in headers.get(b"transfer-encoding", b""):
            self._tail = b"\r\n"
        else:
            self._left = int(headers.get(b"content-length", b"0"))

    def _finish(self) -> int:
        self._head, self._left, self._tail = b"", None, b""
        return self._status


class RedisReader:
    """An answer of one line: an integer or a status. FAILED: an error."""

    def __init__(self) -> None:
        self.closes = False
        self._line = b""

    def feed(self, chunk: bytes) -> int:
        """See Reader."""
        self._line += chunk
        if not self._line.endswith(b"\r\n"):
            return PARTIAL
        failed, self._line = self._line.startswith(b"-"), b""
        return FAILED if failed else COMPLETE


class MySqlReader:
    """A result set in the text protocol: it ends with its second end-of-file packet. FAILED: an error packet."""

    def __init__(self) -> None:
        self.closes = False
        self._bytes = b""
        self._ends = 0
        self._packets = 0

    def feed(self, chunk: bytes) -> int:
        """See Reader."""
        self._bytes += chunk
        while len(self._bytes) > _MYSQL_HEADER_BYTES:
            end = _MYSQL_HEADER_BYTES + int.from_bytes(self._bytes[:3], "little")
            if len(self._bytes) < end:
                break
            status = self._packet(self._bytes[_MYSQL_HEADER_BYTES], end - _MYSQL_HEADER_BYTES)
            self._bytes = self._bytes[end:]
            if status != PARTIAL:
                self._bytes, self._ends, self._packets = b"", 0, 0
                return status
        return PARTIAL

    def _packet(self, first: int, length: int) -> int:
        self._packets += 1
        if first == 0xFF:
            return FAILED
        if first == 0x00 and self._packets == 1:
            return COMPLETE
        self._ends += first == 0xFE and length < 9
        return COMPLETE if self._ends == 2 else PARTIAL


READERS: dict[str, type[Reader]] = {"http": HttpReader, "redis": RedisReader, "mysql": MySqlReader}


def connect(protocol: str, address: str, timeout_s: float) -> socket.socket:
    """An open connection, logged in where the protocol asks for it.

    Args:
        protocol: a key of READERS.
        address: `host:port`, or `unix:` and the path of a socket.
        timeout_s: for each step.

    Raises:
        OSError: nobody answers there.
    """
    if address.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
    else:
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        client.settimeout(timeout_s)
        if address.startswith("unix:"):
            client.connect(address.removeprefix("unix:"))
        else:
            host, port = address.rsplit(":", 1)
            client.connect((host, int(port)))
        if protocol == "mysql":
            _log_in(client)
    except BaseException:
        client.close()
        raise
    return client


def _log_in(client: socket.socket) -> None:
    """As root without a password, as the recorder's own data folder has it; into the database sbtest."""
    _receive_packet(client)
    answer = (
        _MYSQL_CAPABILITIES.to_bytes(4, "little") + (2**24 - 1).to_bytes(4, "little") + bytes([33]) + bytes(23)
        + b"root\0" + bytes(1) + b"sbtest\0" + b"mysql_native_password\0")
    client.sendall(len(answer).to_bytes(3, "little") + bytes([1]) + answer)
    if (packet := _receive_packet(client))[:1] != b"\0":
        raise ConnectionError(f"database refused the login: {packet[9:].decode(errors='replace')}")


def _receive_packet(client: socket.socket) -> bytes:
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:3], "little"):
        chunk = client.recv(65536)
        if not chunk:
            raise ConnectionError("database closed the connection")
        received += chunk
    return received[4:]


def mysql_query(text: str) -> bytes:
    """The packet that asks for `text`."""
    body = b"\x03" + text.encode()
    return len(body).to_bytes(3, "little") + b"\0" + body


def redis_command(*words: str) -> bytes:
    """The command in Redis's protocol."""
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def http_get(path: str, *headers: str) -> bytes:
    """A GET request for `path` on a connection that stays open."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def answers(protocol: str, address: str, request: bytes, timeout_s: float) -> bool:
    """Whether the server gives a useful answer to one real request, on a connection of its own."""
    try:
        with connect(protocol, address, timeout_s) as client:
            client.sendall(request)
            reader = READERS[protocol]()
            while chunk := client.recv(262144):
                if (status := reader.feed(chunk)) != PARTIAL:
                    return status == COMPLETE
    except OSError:
        pass
    return False
