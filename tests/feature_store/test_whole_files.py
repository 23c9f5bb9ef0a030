"""Atomic writes: the old content or the new one, never a part; nothing is left behind."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from feature_store.whole_files import read_regular, whole_file, whole_folder, write_file

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", "old")
    write_file(tmp_path / "a.json", "näw")
    assert (tmp_path / "a.json").read_bytes() == "näw".encode()
    write_file(tmp_path / "a.json", b"\0bytes")
    assert (tmp_path / "a.json").read_bytes() == b"\0bytes"
    assert names(tmp_path) == ["a.json"]


def test_until_the_block_ends_the_old_file_stands(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("old")
    with whole_file(path) as new:
        assert new.suffix == ".npz", "numpy and kfp choose by the ending"
        new.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_after_an_error_the_old_file_stands_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as new:
        new.write_text("half")
        raise ZeroDivisionError
    assert (names(tmp_path), path.read_text()) == (["a"], "old")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    write_file(tmp_path / "a", "old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "a", "new")
    assert (names(tmp_path), (tmp_path / "a").read_text()) == (["a"], "old")


def test_content_is_on_the_disk_before_it_has_its_name_and_the_name_before_the_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [], os.fsync

    def watched(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append(("folder" if is_folder else "file", (tmp_path / "a").exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_file(tmp_path / "a", "text")
    assert synced == [("file", False), ("folder", True)]


def test_without_overwriting_the_first_file_stays(tmp_path: Path) -> None:
    write_file(tmp_path / "key", "first", mode=0o600, overwrite=False)
    write_file(tmp_path / "key", "second", mode=0o600, overwrite=False)
    assert (names(tmp_path), (tmp_path / "key").read_text()) == (["key"], "first")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_file_can_be_made_in_another_folder_than_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    with whole_file(folder / "model.sig", folder=tmp_path) as new:
        assert names(folder) == [] and new.parent == tmp_path
    assert (names(folder), names(tmp_path)) == (["model.sig"], ["bundle"])


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    for text in ("old", "new"):
        with whole_folder(folder) as new:
            (new / "sub").mkdir()
            (new / "sub" / text).write_text(text)
    with pytest.raises(ZeroDivisionError), whole_folder(folder) as new:
        (new / "half").write_text("")
        raise ZeroDivisionError
    assert (names(folder), names(folder / "sub"), names(folder.parent)) == (["sub"], ["new"], ["folder"])


def test_a_folder_that_must_not_be_overwritten_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").write_text("")
    with pytest.raises(OSError, match="not empty"), whole_folder(tmp_path / "folder", overwrite=False) as new:
        (new / "new").write_text("")
    assert (names(tmp_path), names(tmp_path / "folder")) == (["folder"], ["old"])


def test_a_folder_that_cannot_be_renamed_gives_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, calls = Path.rename, []

    def fail_once(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    with whole_folder(tmp_path / "folder") as new:
        (new / "old").write_text("")
    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(OSError, match="Input/output"), whole_folder(tmp_path / "folder") as new:
        (new / "new").write_text("")
    assert (names(tmp_path), names(tmp_path / "folder")) == (["folder"], ["old"])


def test_a_killed_writer_leaves_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from feature_store.whole_files import write_file\n"
        "for k in range(10**6):\n"
        "    write_file(Path(sys.argv[1]), str(k % 10) * 100_000)\n"
        "    if k == 3: print('ready', flush=True)"
    )
    path = tmp_path / "a"
    with subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(200):
            content = path.read_text()
            assert len(content) == 100_000 and len(set(content)) == 1
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    content = path.read_text()
    assert len(content) == 100_000 and len(set(content)) == 1


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")],
                         ids=["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_refused_at_once_and_closed(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no regular file"):
        read_regular(tmp_path / "a")
    assert len(os.listdir("/proc/self/fd")) == opened


def test_of_a_regular_file_the_first_bytes_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert (read_regular(tmp_path / "a"), read_regular(tmp_path / "a", 2)) == (b"abc", b"ab")
