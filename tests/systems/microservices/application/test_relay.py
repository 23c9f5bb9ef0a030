"""The relay: hands on what it is given, late or slowly where it is told to."""

import contextlib
import gc
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from recording.loopback import ADDRESS
from systems.microservices.application.relay import Relay


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while piece := self.request.recv(65_536):
            self.request.sendall(piece)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay() as one:
        yield one


@pytest.fixture
def port(relay: Relay) -> Iterator[int]:
    with Server((ADDRESS, 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield relay.add("echo", server.server_address[1])
        server.shutdown()


def seconds_of(port: int, body: bytes) -> float:
    with socket.create_connection((ADDRESS, port), timeout=10) as client:
        begun = time.monotonic()
        client.sendall(body)
        received = b""
        while len(received) < len(body):
            received += client.recv(65_536)
        assert received == body
        return time.monotonic() - begun


def test_a_delay_counts_for_each_request_and_ends(relay: Relay, port: int) -> None:
    relay.slow("echo", delay_s=2.0)
    assert seconds_of(port, b"now") > 1.0  # half: its law is a normal one with a tenth as its deviation
    relay.slow("echo")
    assert seconds_of(port, b"now") < 1.0


def test_answers_take_what_their_bytes_take(relay: Relay, port: int) -> None:
    relay.slow("echo", bytes_per_s=20_000.0)
    assert seconds_of(port, bytes(40_000)) > 1.8  # 2 s, less the timer's grain
    relay.slow("echo")
    assert seconds_of(port, bytes(40_000)) < 1.8


def test_it_ends_in_the_middle_of_new_connections(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio logs a task that nobody waited for when it is collected."""
    over = threading.Event()

    def connect(port: int) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port), timeout=1):
                pass

    with Server((ADDRESS, 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for _ in range(5):
            over.clear()
            with Relay() as relay:
                port = relay.add("echo", server.server_address[1])
                clients = [threading.Thread(target=connect, args=(port,)) for _ in range(8)]
                for client in clients:
                    client.start()
                time.sleep(0.2)
            over.set()
            for client in clients:
                client.join()
        server.shutdown()
    gc.collect()
    others = "urllib3"  # a thread that a test of a reader left behind may still say that its server never ends
    assert not [record for record in caplog.records if not record.name.startswith(others)]


def test_a_server_that_is_gone_closes_the_connection(relay: Relay) -> None:
    with socket.socket() as nobody:
        nobody.bind((ADDRESS, 0))
        port = relay.add("nobody", nobody.getsockname()[1])
    with socket.create_connection((ADDRESS, port), timeout=10) as client:
        assert client.recv(1) == b""
