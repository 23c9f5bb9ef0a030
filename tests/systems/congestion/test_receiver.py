"""The receiver: an answer that fails is one that is lost, and what ends it says so in a line."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from systems.congestion.receiver import ACK_BYTES, main, serve

ROOT = Path(__file__).parents[3]
PACKET = bytes(range(100))
pytestmark = pytest.mark.timeout(60)


class Failing(socket.socket):
    """Cannot send the first answers."""

    errors: list[int]

    def sendto(self, *given: Any) -> int:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return super().sendto(*given)


def test_it_goes_on_where_an_answer_fails_and_ends_where_its_socket_is_closed() -> None:
    with Failing(socket.AF_INET, socket.SOCK_DGRAM) as listening, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        listening.errors = [errno.EINVAL, errno.ENETUNREACH, errno.EPERM, errno.ECONNREFUSED]
        listening.bind(("127.0.0.1", 0))
        asking.connect(listening.getsockname())
        asking.settimeout(10.0)
        serving = threading.Thread(target=serve, args=(listening,), daemon=True)
        serving.start()
        for _ in range(len(listening.errors) + 1):
            asking.send(PACKET)
        assert asking.recv(2000) == PACKET[:ACK_BYTES] and listening.errors == []
        listening.close()
        asking.send(PACKET)  # wakes it
        serving.join(10.0)
        assert not serving.is_alive()


def test_an_answer_is_not_answered() -> None:
    """So that two receivers cannot be made to talk to each other: what is one byte longer is a packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        listening.bind(("127.0.0.1", 0))
        asking.connect(listening.getsockname())
        asking.settimeout(10.0)
        serving = threading.Thread(target=serve, args=(listening,), daemon=True)
        serving.start()
        asking.send(bytes(ACK_BYTES))
        asking.send(PACKET[:ACK_BYTES + 1])
        assert asking.recv(2000) == PACKET[:ACK_BYTES], "in order: the answer is not answered"
        listening.close()
        asking.send(PACKET)  # wakes it
        serving.join(10.0)
        assert not serving.is_alive()


def test_an_address_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["--bind", where]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"--bind must be a free address of this host, got {where}: ") and said.count("\n") == 1


def test_stopped_by_hand_it_says_a_line_and_no_trace() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        where = found.getsockname()
    running = subprocess.Popen([sys.executable, "-m", "systems.congestion.receiver", "--bind",
                                f"{where[0]}:{where[1]}"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(0.2)
            for _ in range(200):  # until it answers
                asking.sendto(PACKET, where)
                try:
                    asking.recv(2000)
                    break
                except OSError:
                    continue
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=20)
    finally:
        running.kill()
    assert (running.returncode, said) == (0, "stopped: packets are no longer answered\n")
