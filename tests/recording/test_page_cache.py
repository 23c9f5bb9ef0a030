"""What is dropped from the page cache: files, and nothing else that lies beside them."""

import os
import socket
from pathlib import Path

import pytest

from recording.page_cache import drop_from_cache


@pytest.mark.timeout(60)
def test_what_a_server_lays_down_beside_files_is_neither_followed_nor_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    (folder / "below").mkdir(parents=True)
    for file in (folder / "one", folder / "two", elsewhere):
        file.write_text("x")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(elsewhere)
    monkeypatch.chdir(folder)  # a socket's path must be short
    dropped: list[str] = []

    def note(descriptor: int, *_: int) -> None:
        dropped.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "posix_fadvise", note)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        drop_from_cache(folder)
    assert sorted(dropped) == [str(folder / "one"), str(folder / "two")]
