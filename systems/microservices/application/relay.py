"""What stands in front of every service and can slow its network: a relay, for kernels without the queueing discipline
netem.

Requests can be delayed, each piece for a time of its own from a normal law (thesis, section 3.2.6), and answers be
limited to so many bytes a second over all connections of the service.
"""

import asyncio
import contextlib
import os
import random
import threading
from dataclasses import dataclass
from pathlib import Path

from recording.loopback import ADDRESS

_PIECE_BYTES = 65_536
_SLOW_PIECE_BYTES = 4_096
_NICE = -15
_SPREAD = 0.1  # standard deviation of a delay, as a share of its mean


@dataclass
class _Link:
    target: int
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    free_at: float = 0.0


class Relay:
    """Relays of a whole application, on one thread; a context manager."""

    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}
        self._servers: list[asyncio.Server] = []
        self._connected = set[asyncio.Task[None] | None]()  # asyncio holds a task whose client has gone no longer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def __enter__(self) -> "Relay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    def add(self, name: str, target: int) -> int:
        """Listens in front of the port `target`, and returns the port on which it does."""
        link = self._links[name] = _Link(target)
        serving = asyncio.start_server(lambda reader, writer: self._connect(link, reader, writer), ADDRESS, 0)
        server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(5.0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def slow(self, name: str, *, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        """From now on; 0 is as fast as it goes."""
        self._links[name].delay_s, self._links[name].bytes_per_s = delay_s, bytes_per_s

    def _run(self) -> None:
        # A network does not wait for processors that others use.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        with contextlib.suppress(OSError):  # where the kernel shares processors out to sessions first
            Path("/proc/self/autogroup").write_text(str(_NICE))
        self._loop.run_forever()

    async def _connect(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected.add(task := asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            to_server, from_server = await asyncio.open_connection(ADDRESS, link.target)
            with contextlib.closing(from_server):
                await asyncio.gather(_requests(link, reader, from_server), _answers(link, to_server, writer))
        self._connected.discard(task)

    async def _end(self) -> None:
        for server in self._servers:
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)  # asyncio loses connections that were just taken if the server is closed at once
        for server in self._servers:
            server.close()
        # Again and again: a connection that was taken just before has its task only now, which must begin to end well.
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _requests(link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        if link.delay_s:
            await asyncio.sleep(random.gauss(link.delay_s, _SPREAD * link.delay_s))
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


async def _answers(link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    now = asyncio.get_running_loop().time
    while piece := await reader.read(_SLOW_PIECE_BYTES if link.bytes_per_s else _PIECE_BYTES):
        if link.bytes_per_s:
            link.free_at = max(now(), link.free_at) + len(piece) / link.bytes_per_s
            await asyncio.sleep(link.free_at - now())
        writer.write(piece)
        await writer.drain()
    writer.close()
