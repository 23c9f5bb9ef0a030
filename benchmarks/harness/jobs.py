"""Measurements side by side in processes of their own, each result kept as soon as it is there."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """--jobs: how many processes."""
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side; default: 2")


def in_processes(measure: Callable[..., Any], jobs: Sequence[Any], processes: int,
                 keep: Callable[[Any, Any], str]) -> None:
    """Calls `measure(*job)` for every job and `keep(job, result)` here, in the order in which they end.

    Args:
        measure: a function of a module's top level.
        jobs: its arguments, a tuple each.
        processes: how many at a time.
        keep: writes a result; what it returns is printed with the time.
    """
    began = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(measure, *job): job for job in jobs}
        try:
            for number, future in enumerate(as_completed(running), 1):
                line = keep(running[future], future.result())
                print(f"{time.monotonic() - began:6.0f} s  {number} of {len(jobs)}  {line}", file=sys.stderr,
                      flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
