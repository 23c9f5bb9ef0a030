"""Ports that are chosen before something listens on them."""

import socket
from pathlib import Path

from recording.loopback import ADDRESS, accepts_connections, free_port


def test_a_free_port_is_never_one_that_an_outgoing_connection_may_be_given():
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(300)}
    assert max(ports) < least and min(ports) > 1024
    assert len(ports) == 300, "none is told twice, before anything listens there"


def test_a_socket_with_a_path_is_asked_like_a_port(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert not accepts_connections(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert not accepts_connections(path)
        server.listen()
        assert accepts_connections(path)


def test_a_port_in_use_is_not_offered(monkeypatch):
    with socket.socket() as server:
        server.bind((ADDRESS, free_port()))
        server.listen()
        taken = server.getsockname()[1]
        assert accepts_connections(taken)
        monkeypatch.setattr("recording.loopback._PORTS", (taken, taken + 2))
        assert free_port() == taken + 1
