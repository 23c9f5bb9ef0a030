"""An HTTP server for tests: one thread, an answer at once, but for one stall."""

import selectors
import socket
import threading
import time
from collections.abc import Collection
from types import TracebackType
from typing import Self


class TinyServer:
    """Answers one request after the other; before the answer to one of them it sleeps. A context manager.

    Attributes:
        stalled: CLOCK_MONOTONIC at the beginning and the end of the stall, once it has been, s.
    """

    def __init__(self, stall_at: int = -1, stall_s: float = 0.0, closes: bool = False, says: bool = True,
                 hangs_up_at: Collection[int] = ()) -> None:
        """Args:
        stall_at: number of the request before whose answer it sleeps.
        stall_s: for how long, s.
        closes: whether it closes the connection after each answer.
        says: whether the answer says so.
        hangs_up_at: numbers of the requests in place of whose answer it closes the connection.
        """
        self._stall_at, self._stall_s, self._closes = stall_at, stall_s, closes
        self._says, self._hangs_up_at = says, hangs_up_at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ended = False
        self._thread = threading.Thread(target=self._serve)
        self.stalled: tuple[float, float] | None = None
        self.requests = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _serve(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._selector.register(self._listener.accept()[0], selectors.EVENT_READ)
                else:
                    self._answer(key.fileobj)  # type: ignore[arg-type]

    def _answer(self, client: socket.socket) -> None:
        request = client.recv(65536)
        hangs_up = not request or self.requests in self._hangs_up_at
        self.requests += bool(request) and hangs_up
        if not hangs_up:
            if self.requests == self._stall_at:
                begun = time.monotonic()
                time.sleep(self._stall_s)
                self.stalled = (begun, time.monotonic())
            self.requests += 1
            found = b"404 Not Found" if b"missing" in request else b"200 OK"
            close = b"Connection: close\r\n" if self._closes and self._says else b""
            client.sendall(b"HTTP/1.1 " + found + b"\r\n" + close + b"Content-Length: 2\r\n\r\nok")
        if hangs_up or self._closes:
            self._selector.unregister(client)
            client.close()
