"""Parts of a measurement: kept, made once, and gone with whoever started them."""

import math
import operator
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.harness.jobs import kept_parts
from feature_store.errors import InputError

SLEEPER = ("import sys, time, operator, pathlib; from benchmarks.harness.jobs import in_processes; "
           "in_processes(operator.call, [(pathlib.Path(sys.argv[1]).touch,), (time.sleep, 600)], 1, lambda *_: '')")


def test_a_part_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    parts = {"sum": (operator.add, 1, 2), "root": (math.sqrt, 4.0)}
    assert kept_parts(tmp_path / "work", parts, 2) == {"sum": 3, "root": 2.0}

    (tmp_path / "work" / "sum.json").write_text("7")
    assert kept_parts(tmp_path / "work", parts | {"more": (operator.mul, 2, 3)}, 1) == {
        "sum": 7, "root": 2.0, "more": 6}


def test_what_is_done_stays_where_a_part_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"math domain error|nonnegative"):
        kept_parts(tmp_path, {"good": (math.sqrt, 4.0), "bad": (math.sqrt, -1.0)}, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["good.json"]


def test_a_part_that_may_not_be_kept_is_not(tmp_path: Path) -> None:
    def check() -> None:
        if list(tmp_path.iterdir()):
            raise InputError("changed")

    with pytest.raises(InputError, match="changed"):
        kept_parts(tmp_path, {"one": (operator.add, 1, 2), "two": (operator.add, 1, 3)}, 1, check)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_number_of_processes_that_does_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--jobs must be at least 1, got 0"):
        kept_parts(tmp_path, {"sum": (operator.add, 1, 2)}, 0)


def test_processes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    began = tmp_path / "began"
    with subprocess.Popen([sys.executable, "-c", SLEEPER, str(began)], stderr=subprocess.DEVNULL) as parent:
        deadline = time.monotonic() + 120
        while not began.exists():
            assert parent.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        workers = psutil.Process(parent.pid).children()
        parent.kill()
    assert workers
    _, left = psutil.wait_procs(workers, timeout=30)
    assert not left
