"""What a client may cost: bytes of a body, requests a second, seconds until a request is there.

Where a limit is reached the answer is an `HTTPException`: 413 (a body that is too large), 429 (too many requests, with
Retry-After), 408 (a body that is too slow), 415 (a body that is compressed: nobody knows how large it is).
"""

import asyncio
import math
import time
from collections.abc import Callable
from ssl import SSLContext
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_S = 10.0  # until a TLS handshake is done, then until the head of a request is there, then until its body is


class Limits:
    """Of one server; asked by its event loop alone."""

    def __init__(self, most_bytes: int, most_a_second: float | None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
            most_bytes: of a body.
            most_a_second: requests, of which a second's worth may come at once; None: any number.
            clock: seconds, never going back.
        """
        self._most_bytes, self._rate, self._clock = most_bytes, most_a_second, clock
        self._most_tokens = max(1.0, most_a_second or 0.0)
        self._tokens, self._filled_at = self._most_tokens, clock()

    async def body(self, request: Request) -> bytes:
        """The body of a request that is let in. Raises HTTPException: it is not."""
        self._let_in()
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise HTTPException(415, f"content-encoding must be identity, got {encoding!r:.40}")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._most_bytes:
            raise self._too_large(length)
        body = bytearray()
        try:
            async with asyncio.timeout(MOST_S):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self._most_bytes:
                        raise self._too_large(f"more than {self._most_bytes}")
        except TimeoutError:
            raise HTTPException(408, f"body must be there within {MOST_S:g} s, got {len(body)} bytes") from None
        return bytes(body)

    def _let_in(self) -> None:
        if self._rate is None:
            return
        now = self._clock()
        self._tokens = min(self._most_tokens, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1.0:
            wait_s = math.ceil((1.0 - self._tokens) / self._rate)
            raise HTTPException(429, f"requests must be at most {self._rate:g} a second, got more; come back in "
                                     f"{wait_s} s", {"Retry-After": str(wait_s)})
        self._tokens -= 1.0

    def _too_large(self, got: str) -> HTTPException:
        return HTTPException(413, f"body must have at most {self._most_bytes} bytes, got {got}; --max-body sets it")


class TimedLoop(asyncio.SelectorEventLoop):
    """asyncio's, which waits a minute for a TLS handshake; uvicorn has no option for it."""

    async def create_server(self, *args: Any, ssl: SSLContext | None = None,  # type: ignore[override]
                            **kwargs: Any) -> asyncio.Server:
        """asyncio takes a time for handshakes only where there are any."""
        return await super().create_server(*args, ssl=ssl, ssl_handshake_timeout=None if ssl is None else MOST_S,
                                           **kwargs)


class TimedProtocol(H11Protocol):
    """uvicorn's, which waits for ever for the rest of a head, and for the rest of a body that was answered already."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection on which nothing comes is closed too."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """A byte now and then does not keep the connection."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to wait for."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # a request is worked on
            self._forget()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(MOST_S, self._hang_up)

    def _forget(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _hang_up(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
