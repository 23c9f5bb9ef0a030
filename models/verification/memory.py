"""How much memory a verdict may take, and what a lack of it looks like.

The kernel holds the limit, on what the process writes to (RLIMIT_DATA, setrlimit(2)): nothing looks at a counter now
and then. What then fails to allocate is a lack of memory and no verdict; branch and bound goes on with smaller batches.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feature_store.errors import InputError

MIB = 2**20
# What PyTorch, onnxruntime (std::bad_alloc) and NumPy say where they cannot allocate.
TEXTS = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "unable to allocate",
         "bad_alloc", "bad allocation")


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had."""
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in TEXTS)


@contextmanager
def memory_limit(mib: int | None) -> Iterator[None]:
    """No more than so much memory inside, code and files that are mapped included; None: as much as there is.

    Raises:
        InputError: the process has more already.
    """
    if mib is None:
        yield
        return
    mapped, written = _kept("RssFile"), _kept("VmData")
    if mib * MIB - mapped <= written:
        raise InputError(f"memory must be more than the {(mapped + written) / MIB:.0f} MiB that are taken before "
                         f"anything is read, got {mib}")
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (mib * MIB - mapped, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def _kept(name: str) -> int:
    """Bytes by /proc/self/status, proc_pid_status(5)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
