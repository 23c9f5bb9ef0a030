"""The log stamper: every line gets the time at which it came."""

import os
import time
from pathlib import Path

import pytest

from feature_store.errors import SourceError
from recording.stamped_log import LogStamper, split_stamped


def await_lines(log: Path, count: int) -> list[tuple[float, str]]:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        lines = split_stamped(log.read_text())
        if len(lines) >= count:
            return lines
        time.sleep(0.01)
    raise AssertionError(f"{len(lines)} of {count} lines came")


def test_lines_are_stamped_in_order_and_carriage_returns_end_lines(tmp_path: Path) -> None:
    stamper, log = LogStamper(), tmp_path / "a.log"
    read, write = os.pipe()
    stamper.add(read, log)
    before = time.time()
    os.write(write, b"one\rtw")
    os.write(write, b"o\n\n")
    lines = await_lines(log, 2)
    assert [line for _, line in lines] == ["one", "two"]
    assert before - 0.01 <= lines[0][0] <= lines[1][0] <= time.time() + 0.01
    os.close(write)
    os.close(read)
    stamper.close()


def test_several_pipes_go_to_their_own_files(tmp_path: Path) -> None:
    stamper = LogStamper()
    pipes = [os.pipe() for _ in range(3)]
    for number, (read, _) in enumerate(pipes):
        stamper.add(read, tmp_path / f"{number}.log")
    for number, (read, write) in enumerate(pipes):
        os.write(write, f"from {number}\n".encode())
        os.close(write)
        os.close(read)
    for number in range(3):
        assert await_lines(tmp_path / f"{number}.log", 1)[0][1] == f"from {number}"
    stamper.close()


def test_a_log_that_cannot_be_written_is_reported_and_none_is_begun_after_it(tmp_path: Path) -> None:
    stamper = LogStamper()
    read, write = os.pipe()
    stamper.add(read, Path("/dev/full"))  # as a disk that is full
    stamper.require_alive()
    os.write(write, b"line\n")
    with pytest.raises(SourceError, match=r"logs of load generators must be written, got: .*No space left"):
        for _ in range(500):
            time.sleep(0.01)
            stamper.require_alive()
    with pytest.raises(SourceError, match="No space left"):
        stamper.add(read, tmp_path / "next.log")
    os.close(write)
    os.close(read)
    stamper.close()
