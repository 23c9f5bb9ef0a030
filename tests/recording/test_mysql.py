"""Where MariaDB is told to listen."""

import os
from pathlib import Path

import pytest

from feature_store.errors import InputError
from recording.workloads.base import Place
from recording.workloads.mysql import MySQL


def test_a_temporary_folder_too_deep_for_a_socket_is_said_before_the_server_starts() -> None:
    fits = Path("/" + 95 * "a")
    assert len(str(MySQL().socket(Place(Path("home"), fits, 1)))) == 107
    with pytest.raises(InputError, match=r"at most 107 bytes, got .*TMPDIR"):
        MySQL().socket(Place(Path("home"), fits / "b", 1))
    with pytest.raises(InputError, match="at most 107 bytes"):  # bytes, not letters
        MySQL().socket(Place(Path("home"), Path("/" + 94 * "a" + "ä"), 1))


def test_its_temporary_files_go_to_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, its account may enter TMPDIR, and need not be able to write there."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--tmpdir=/run" in MySQL().server({"memory_mb": 64.0}, Place(Path("/home"), Path("/run"), 1))
