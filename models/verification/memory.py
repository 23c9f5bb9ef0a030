"""How much memory a verdict may take, and what a lack of it looks like.

The kernel holds the limit, on what a process writes to (RLIMIT_DATA, setrlimit(2)): nothing looks at a counter now and
then. What then fails to allocate is a lack of memory and no verdict; branch and bound goes on with smaller batches. Not
every native library lives through a lack of memory, so what is limited is a process of its own: however it ends, the
one that asked is there to say so.
"""

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from feature_store.errors import AssayError, InputError
from feature_store.process_end import end_with_parent

MIB = 2**20
# What PyTorch, onnxruntime (std::bad_alloc) and NumPy say where they cannot allocate.
TEXTS = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "unable to allocate",
         "bad_alloc", "bad allocation")
NAMES = ("OutOfMemoryError",)  # PyTorch's may have no text


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had."""
    return isinstance(error, MemoryError) or type(error).__name__ in NAMES or any(
        text in str(error).lower() for text in TEXTS)


def within_memory(mib: int, work: Callable[..., Any], report: Callable[..., None] | None, *arguments: Any) -> Any:
    """`work(reporter, *arguments)`, done by another process so that both together keep to the limit.

    Args:
        mib: code and files that are mapped included.
        work: a function of a module; what it is given, reports and returns is pickled.
        report: called here with what `work` passes to its reporter; None: then the reporter is None too.

    Ctrl-C interrupts `work`, whose answer is still waited for. From the main thread alone, which signals reach.

    Raises:
        InputError: more is taken already; what was raised within the limit, or no answer came.
        AssayError: what `work` raised; KeyboardInterrupt as well.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(theirs, mib, _kept("VmRSS"), work, report is not None, arguments), daemon=True)
    process.start()
    theirs.close()
    before = signal.signal(signal.SIGINT, lambda *_: os.kill(process.pid or 0, signal.SIGINT))
    try:
        while True:
            kind, answer = ours.recv()
            if kind == "done":
                return answer
            if kind == "raised":
                raise answer
            if report is not None:
                report(*answer)
    except EOFError:
        process.join()
        raise _too_little(mib, f"a process that ended without an answer (exit code {process.exitcode})") from None
    finally:
        signal.signal(signal.SIGINT, before)
        process.kill()
        process.join()


def _work(connection: Connection, mib: int, taken: int, work: Callable[..., Any], reports: bool,
          arguments: tuple[Any, ...]) -> None:
    """In the other process: sends ("report", arguments), then ("done", result) or ("raised", error)."""
    os.setpgrp()  # Ctrl-C reaches it once, from the process that asked
    parent = multiprocessing.parent_process()
    end_with_parent(signal.SIGKILL, None if parent is None else parent.pid)
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool that lacks memory for another thread ends the process
    mapped, written = _kept("RssFile"), _kept("VmData")
    limit = mib * MIB - taken - mapped
    if limit <= written:
        connection.send(("raised", InputError(f"memory must be more than the {mib + (written - limit) / MIB:.0f} MiB "
                                              f"that are taken before anything is read, got {mib}")))
        return
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        result = work((lambda *state: connection.send(("report", state))) if reports else None, *arguments)
        connection.send(("done", result))
    except (AssayError, KeyboardInterrupt) as error:
        connection.send(("raised", error))
    except Exception as error:
        connection.send(("raised", _too_little(mib, f"{type(error).__name__}: {error}")))


def _too_little(mib: int, got: str) -> InputError:
    return InputError(f"memory must suffice to decide the property, got {got} within {mib} MiB; give more")


def _kept(name: str) -> int:
    """Bytes by /proc/self/status, proc_pid_status(5)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
