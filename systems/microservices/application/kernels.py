"""The work that is a service's own: compute, memory, disk or waiting, in amounts and not in times.

So that contention shows: the same amount takes longer where a processor, a cache or a disk is shared.
"""

import hashlib
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# Rounds of SHA-256 in one unit, about half a millisecond of a processor.
_ROUNDS = 2_000
# More than the last-level cache of the processors at hand (32 MiB), so that a read of it is one of memory.
_TABLE_ITEMS = 16 * 2**20
_READS = 60_000
_BLOCK_BYTES, _BLOCKS = 16_384, 2_048

Kernel = Callable[[float], None]


def compute(_folder: Path) -> Kernel:
    """Unit: 2,000 rounds of PBKDF2, which no cache or disk matters to."""

    def run(amount: float) -> None:
        hashlib.pbkdf2_hmac("sha256", b"shop", b"salt", int(amount * _ROUNDS))

    return run


def memory(_folder: Path) -> Kernel:
    """Unit: 60,000 reads all over a table of 64 MiB."""
    random = np.random.default_rng(0)
    table = random.random(_TABLE_ITEMS, dtype=np.float32)
    places = random.integers(0, _TABLE_ITEMS, 2**20)

    def run(amount: float) -> None:
        count = int(amount * _READS)
        first = int.from_bytes(os.urandom(4)) % (len(places) - count)
        np.take(table, places[first : first + count]).sum()

    return run


def disk_read(folder: Path) -> Kernel:
    """Unit: 16 KiB from a random place of a file of 32 MiB, past the page cache."""
    return _disk(folder, lambda file, block, at: os.preadv(file, [block], at))


def disk_write(folder: Path) -> Kernel:
    """Unit: 16 KiB to a random place of a file of 32 MiB, past the page cache."""
    return _disk(folder, lambda file, block, at: os.pwritev(file, [block], at))


def _disk(folder: Path, once: Callable[[int, mmap.mmap, int], int]) -> Kernel:
    file = os.open(folder / "blocks", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    whole = mmap.mmap(-1, _BLOCK_BYTES * _BLOCKS)
    os.pwritev(file, [whole], 0)
    whole.close()

    def run(amount: float) -> None:
        with mmap.mmap(-1, _BLOCK_BYTES) as block:  # direct access wants whole pages
            for _ in range(int(amount)):
                once(file, block, _BLOCK_BYTES * (int.from_bytes(os.urandom(4)) % _BLOCKS))

    return run


def waiting(_folder: Path) -> Kernel:
    """Unit: 1 ms of somebody else's work, such as a bank's."""
    return lambda amount: time.sleep(amount / 1000)


KERNELS: dict[str, Callable[[Path], Kernel]] = {
    "compute": compute, "memory": memory, "disk_read": disk_read, "disk_write": disk_write, "waiting": waiting}
