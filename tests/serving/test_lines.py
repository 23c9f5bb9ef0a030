"""Lines that are written by a thread: nobody waits for whoever reads them."""

import fcntl
import os
import subprocess
import sys
import time
from io import StringIO

import pytest

from serving.lines import KEPT, Lines

SMALL = 4096  # a pipe's least size
PROGRAM = """
import sys, time
from serving.lines import Lines
began = time.monotonic()
with Lines(sys.stdout) as lines:
    for number in range(3000):
        lines("x" * 200)
    said = time.monotonic() - began
print(said, time.monotonic() - began, file=sys.stderr)
"""


def test_a_pipe_that_nobody_reads_holds_up_neither_the_caller_nor_the_end_of_the_process():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL)
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=writer, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)
    finally:
        os.close(writer)
        os.close(reader)
    assert done.returncode == 0, done.stderr
    said, ended = map(float, done.stderr.split())
    assert said < 1.0 and ended < 10.0


def test_all_lines_reach_a_slow_reader_in_their_order_and_what_is_too_many_is_left_out(monkeypatch):
    reader, writer = os.pipe()
    with os.fdopen(reader) as read, os.fdopen(writer, "w") as stream:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALL)
        lines = Lines(stream)
        for number in range(3 * KEPT):
            lines(f"{number}: {'x' * 40}")
        first = [read.readline().split(":")[0] for _ in range(KEPT)]
        assert first == [str(number) for number in range(KEPT)], "those that waited"
        deadline = time.monotonic() + 30.0
        while not lines._waiting.empty() and time.monotonic() < deadline:
            read.readline()
        lines("the last one")
        lines.__exit__()
        stream.close()
        assert read.read().endswith("the last one\n")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_what_cannot_be_written_is_escaped_and_a_closed_pipe_ends_nothing(encoding):
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as read, os.fdopen(writer, "w", encoding=encoding) as stream:
        with Lines(stream) as lines:
            lines("café \x1b[2J")
        stream.close()
        assert read.read() == ("caf\\xe9" if encoding == "ascii" else "café") + " \\x1b[2J\n"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, Lines(stream) as lines:
        lines("nobody is there")


def test_a_stream_without_a_descriptor_is_written_too():
    stream = StringIO()
    with Lines(stream) as lines:
        lines("one")
        lines("two")
    assert stream.getvalue() == "one\ntwo\n"
