"""What a client may cost, and how the service ends."""

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
import requests
from starlette.exceptions import HTTPException
from starlette.requests import Request

from serving.predictions import limits
from serving.predictions.limits import Limits
from serving.predictions.server import listen
from tests.serving.conftest import ROOT
from tests.serving.predictions.running import INSIDE, LIGHT, running, signed_bundle

PATH = "/v2/models/performance.redis/infer"
QUESTION = json.dumps({"inputs": [{"name": "telemetry", "datatype": "FP64", "shape": [1, 3],
                                   "data": list(INSIDE.values())}]}).encode()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, keys):
    return signed_bundle(tmp_path_factory.mktemp("limits") / "bundle", keys[0])


@pytest.fixture(scope="module")
def service(bundle, keys):
    """Of bodies up to 3,000 bytes, whose heads and bodies must come within a second."""
    command = f"from serving.predictions import limits; limits.MOST_S = 1.0; {LIGHT}"
    with running("--bundle", bundle, "--public-key", keys[1], "--max-body", "3000", command=command) as made:
        yield made


def connected(service):
    address = urlsplit(service.url)
    return socket.create_connection((address.hostname, address.port), 10.0)


def head(length, *more):
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def received(client):
    """All that comes until the server hangs up."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_a_body_that_is_too_large_is_413_by_its_length_and_by_what_comes(service):
    for data in (b"x" * 3001, b"x" * 2_000_000, iter([b"x" * 1000] * 4)):
        answer = requests.post(service.url + PATH, data, timeout=20)
        assert answer.status_code == 413 and "at most 3000 bytes" in answer.json()["error"]
    assert requests.post(service.url + PATH, QUESTION + b" " * (3000 - len(QUESTION)), timeout=20).status_code == 200


def test_a_compressed_body_is_415(service):
    answer = requests.post(service.url + PATH, QUESTION, headers={"Content-Encoding": "gzip"}, timeout=20)
    assert answer.status_code == 415 and "content-encoding must be identity" in answer.json()["error"]


def test_a_body_that_never_comes_is_408_and_the_next_client_is_served_meanwhile(service):
    with connected(service) as slow:
        slow.sendall(head(len(QUESTION)) + QUESTION[:10])
        assert requests.post(service.url + PATH, QUESTION, timeout=20).status_code == 200
        assert b" 408 " in slow.recv(65536)


@pytest.mark.parametrize("begin", [b"", b"POST /v2 HTTP/1.1\r\nHost: x\r\n", head(5000)],
                         ids=["nothing", "half a head", "a body that was refused already"])
def test_a_client_that_drips_is_hung_up_on(service, begin):
    with connected(service) as slow:
        slow.sendall(begin)
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 10.0:
                slow.sendall(b"a")
                time.sleep(0.1)
        assert time.monotonic() - began < 8.0


def test_a_kept_connection_lives_as_long_as_its_requests_are_whole(service):
    address = urlsplit(service.url)
    client, sockets = http.client.HTTPConnection(address.hostname, address.port, timeout=20), set()
    began = time.monotonic()
    while time.monotonic() - began < 2.5:  # the limit is one second here
        client.request("POST", PATH, QUESTION)
        sockets.add(client.sock)
        answer = client.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
        time.sleep(0.3)
    client.close()
    assert len(sockets) == 1


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 70_000,
                                  b"GET / HTTP/1.1\r\nA: " + b"b" * 200_000,
                                  b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                                  b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"])
def test_what_is_no_http_ends_its_own_connection_alone(service, sent):
    with connected(service) as client:
        client.settimeout(10.0)
        try:
            client.sendall(sent)
            assert received(client).startswith((b"HTTP/1.1 400", b"HTTP/1.1 4"))
        except ConnectionError:  # hung up on while it still sent
            pass
    assert requests.get(f"{service.url}/healthz", timeout=20).status_code == 200


def test_a_client_that_hangs_up_in_the_middle_is_no_error(service):
    before = len(service.lines)
    for _ in range(3):
        with connected(service) as client:
            client.sendall(head(len(QUESTION)) + QUESTION[:10])
    assert requests.post(service.url + PATH, QUESTION, timeout=20).status_code == 200
    assert service.lines[before:] == []


def test_too_many_requests_are_429_and_say_when_to_come_back(bundle, keys):
    with running("--bundle", bundle, "--public-key", keys[1], "--max-rate", "2") as service:
        answers = [requests.post(service.url + PATH, QUESTION, timeout=20) for _ in range(12)]
        refused = [one for one in answers if one.status_code == 429]
        assert answers[0].status_code == 200 and refused
        assert refused[0].headers["Retry-After"] == "1" and "at most 2 a second" in refused[0].json()["error"]
        assert requests.get(f"{service.url}/healthz", timeout=20).status_code == 200
        time.sleep(1.1)
        assert requests.post(service.url + PATH, QUESTION, timeout=20).status_code == 200


def test_tokens_come_back_at_the_rate_and_no_more_than_a_second_of_them():
    now = [0.0]
    made = Limits(100, 3.0, clock=lambda: now[0])

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    def let_in():
        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        try:
            asyncio.run(made.body(request))
        except HTTPException as error:
            return error.headers["Retry-After"]
        return None

    assert [let_in() for _ in range(4)] == [None, None, None, "1"]
    now[0] = 0.34
    assert [let_in(), let_in()] == [None, "1"]
    now[0] = 100.0
    assert [let_in() for _ in range(4)] == [None, None, None, "1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_at_the_end_what_is_asked_is_answered_and_the_exit_code_is_0(bundle, keys, number):
    with running("--bundle", bundle, "--public-key", keys[1]) as service, connected(service) as client, connected(
            service) as idle:
        client.sendall(head(len(QUESTION)) + QUESTION[:-1])
        idle.sendall(b"")
        assert requests.get(f"{service.url}/healthz", timeout=20).status_code == 200  # so the head has been read
        service.process.send_signal(number)
        time.sleep(0.4)
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{service.url}/healthz", timeout=20)
        client.sendall(QUESTION[-1:])
        client.settimeout(10.0)
        assert b"HTTP/1.1 200" in received(client)
        assert service.process.wait(15) == 0
    assert [line for line in service.lines if " at http://" not in line] == []


def test_small_answers_wait_for_no_acknowledgement():
    """asyncio sets TCP_NODELAY only where a socket names its protocol; without it each answer takes 40 ms."""
    with listen("127.0.0.1", 0) as sock:
        assert (sock.proto, sock.getsockname()[0]) == (socket.IPPROTO_TCP, "127.0.0.1")


def test_without_the_extra_one_line_says_what_to_install(bundle, keys):
    hidden = "import sys; sys.modules['uvicorn'] = None; "
    done = subprocess.run([sys.executable, "-c", hidden + LIGHT, "serve", "--bundle", str(bundle), "--public-key",
                           str(keys[1])], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "pip install 'assay-serving[serve]'" in done.stderr


def test_waiting_times_are_those_that_the_page_says():
    assert limits.MOST_S == 10.0


def test_as_many_connections_as_are_said_are_answered_and_no_more(bundle, keys):
    command = f"from serving.predictions import server; server.MOST_CONNECTIONS = 5; {LIGHT}"
    with running("--bundle", bundle, "--public-key", keys[1], command=command) as made, ExitStack() as kept:
        for count, status in ((5, b"200"), (1, b"503")):
            client = [kept.enter_context(connected(made)) for _ in range(count)][-1]
            client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 " + status)
