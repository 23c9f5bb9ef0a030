"""Measurements side by side in processes of their own, each result kept as soon as it is there."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from feature_store.errors import InputError
from feature_store.process_end import end_with_parent
from feature_store.whole_files import write_file


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """--jobs: how many processes."""
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side; default: 2")


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread each, that are gone when the block ends, however it ends. Raises InputError below one."""
    if count < 1:
        raise InputError(f"--jobs must be at least 1, got {count}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # they inherit it
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=end_with_parent,
                               initargs=(signal.SIGTERM, os.getpid()))
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def in_processes(measure: Callable[..., Any], jobs: Sequence[Any], count: int, keep: Callable[[Any, Any], str]) -> None:
    """Calls `measure(*job)` for every job and `keep(job, result)` here, in the order in which they end.

    Args:
        measure: a function of a module's top level.
        jobs: its arguments, a tuple each.
        count: how many processes.
        keep: writes a result; what it returns is printed with the time.
    """
    began = time.monotonic()
    with processes(count) as pool:
        running = {pool.submit(measure, *job): job for job in jobs}
        for number, future in enumerate(as_completed(running), 1):
            line = keep(running[future], future.result())
            print(f"{time.monotonic() - began:6.0f} s  {number} of {len(jobs)}  {line}", file=sys.stderr, flush=True)


def kept_parts(folder: Path, parts: Mapping[str, tuple[Any, ...]], count: int,
               check: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Results of parts of a measurement; one that is there from before is not made again.

    Args:
        folder: of the results, a JSON file each.
        parts: name -> function of a module's top level and its arguments; long ones first.
        count: how many processes.
        check: called before a result is kept; raises where it may not be.
    """
    def keep(job: tuple[Any, ...], result: Any) -> str:
        check()
        write_file(folder / f"{job[0]}.json", json.dumps(result).encode())
        return str(job[0])

    folder.mkdir(parents=True, exist_ok=True)
    missing = [(name, *part) for name, part in parts.items() if not (folder / f"{name}.json").exists()]
    in_processes(_call, missing, count, keep)
    return {name: json.loads((folder / f"{name}.json").read_bytes()) for name in parts}


def _call(_name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)
