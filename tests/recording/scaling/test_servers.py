"""The scaling campaign's servers: what their copies hold, and what a resize does."""

import os
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from recording import nginx_command
from recording.scaling.servers.catalogue import SERVERS
from recording.workloads.base import Place


@pytest.mark.parametrize("name", ["redis", "mysql"])
def test_a_copy_of_what_a_server_wrote_follows_no_link(name: str, tmp_path: Path) -> None:
    home, instance = tmp_path / "home", tmp_path / "instance"
    (home / "data").mkdir(parents=True)
    instance.mkdir()
    (tmp_path / "file").write_text("x")
    for link, target in (("file", tmp_path / "file"), ("folder", tmp_path), ("nowhere", tmp_path / "nowhere")):
        (home / "data" / link).symlink_to(target)
    assert SERVERS[name].copy(home, instance) == instance
    assert all((instance / "data" / link).is_symlink() for link in ("file", "folder", "nowhere"))


def test_a_resize_of_nginx_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked(*_: Path) -> NoReturn:
        pytest.fail("asked for the account")

    place, nginx, sent = Place(tmp_path / "home", tmp_path, 8000), SERVERS["nginx"], list[tuple[int, int]]()
    monkeypatch.setattr(nginx_command, "unprivileged", lambda *_: [])
    nginx.command(place, 1)
    before = (tmp_path / "nginx.conf").read_text()
    monkeypatch.setattr(nginx_command, "unprivileged", unasked)
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    nginx.set_workers(place, 2, 17)
    after = (tmp_path / "nginx.conf").read_text()
    assert "worker_processes 1;" in before and after == before.replace("worker_processes 1;", "worker_processes 2;")
    assert sent == [(17, signal.SIGHUP)]
