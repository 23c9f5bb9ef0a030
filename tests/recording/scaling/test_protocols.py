"""When an answer is whole, however it is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recording.scaling.protocols import (
    COMPLETE,
    FAILED,
    PARTIAL,
    READERS,
    HttpReader,
    http_get,
    mysql_query,
    redis_command,
)


def packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


END = b"\xfe\x00\x00\x02\x00"
RESULT_SET = b"".join([packet(1, b"\x01"), packet(2, b"\x03def" + b"c" * 30), packet(3, END),
                       packet(4, b"\x0242"), packet(5, b"\xfe" + b"x" * 20), packet(6, END)])
BODY = b"a" * 300
ANSWERS = [
    ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n" + BODY, COMPLETE),
    ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", COMPLETE),
    ("http", b"HTTP/1.1 503 Busy\r\ncontent-length: 300\r\n\r\n" + BODY, FAILED),
    ("http", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\n" + BODY + b"\r\n0\r\n\r\n", COMPLETE),
    ("http", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", COMPLETE),
    ("redis", b":1234\r\n", COMPLETE),
    ("redis", b"-ERR no such script\r\n", FAILED),
    ("mysql", RESULT_SET, COMPLETE),
    ("mysql", packet(1, b"\x00\x00\x00\x02\x00\x00\x00"), COMPLETE),
    ("mysql", packet(1, b"\xff\x48\x04#HY000no"), FAILED),
]


@pytest.mark.parametrize(("protocol", "answer", "expected"), ANSWERS)
@given(cuts=st.lists(st.integers(1, 500), max_size=6), repeats=st.integers(1, 3))
def test_an_answer_is_whole_at_its_last_byte(
    protocol: str, answer: bytes, expected: int, cuts: list[int], repeats: int
) -> None:
    reader = READERS[protocol]()
    for _ in range(repeats):
        places = sorted({min(cut, len(answer)) for cut in cuts} | {len(answer)})
        pieces = [answer[begin:end] for begin, end in zip([0, *places], places, strict=False) if end > begin]
        statuses = [reader.feed(piece) for piece in pieces]
        assert statuses == [PARTIAL] * (len(pieces) - 1) + [expected]


def test_a_server_that_closes_says_so() -> None:
    reader = HttpReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok") == COMPLETE
    assert reader.closes
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") == COMPLETE
    assert not reader.closes


def test_requests_are_what_the_protocols_ask_for() -> None:
    assert redis_command("SET", "k", "é") == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\xc3\xa9\r\n"
    assert mysql_query("SELECT 1") == b"\x09\x00\x00\x00\x03SELECT 1"
    assert http_get("/a", "X: 1") == b"GET /a HTTP/1.1\r\nHost: localhost\r\nX: 1\r\n\r\n"
