"""A small disk for tests: a tmpfs mounted over a folder, where that is possible."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PIECE_BYTES = 4096  # a page: what a tmpfs hands out


@contextlib.contextmanager
def mounted(folder: Path, size_kb: int) -> Iterator[bool]:
    """`folder` is a file system of its own for the length of the block; yields whether it could be made one."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "assay-test", str(folder)]
    is_mounted = shutil.which("mount") is not None and not subprocess.run(
        command, capture_output=True, check=False).returncode
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)  # sqlite holds its file


@contextlib.contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[None]:
    """As `mounted`, but the test is skipped where it cannot be."""
    with mounted(folder, size_kb) as is_mounted:
        if not is_mounted:
            pytest.skip("a small file system cannot be mounted here (needs root)")
        yield


def fill(folder: Path, leave_kb: int = 0) -> Path:
    """A file that takes all room of the disk but `leave_kb`."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):  # somebody else may write meanwhile
        for _ in range(max(0, shutil.disk_usage(folder).free - leave_kb * 1024) // PIECE_BYTES):
            file.write(bytes(PIECE_BYTES))
    return filler
