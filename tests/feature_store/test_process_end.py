"""SIGTERM, real, to real processes: clean-up runs once and whole; a child ends with its parent."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from feature_store.process_end import sigterm_as_exit

ROOT = Path(__file__).parents[2]
# Says what it does line by line; its clean-up waits for a line, and for a program that it starts.
CLEANS_UP = """
import signal, subprocess, sys
from feature_store.process_end import sigterm_as_exit

try:
    with sigterm_as_exit():
        try:
            print("begun", flush=True)
            signal.pause()
        finally:
            print("cleaning up", flush=True)
            sys.stdin.readline()
            child = subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"])
            print("cleaned up", child.returncode, flush=True)
finally:
    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
"""
PARENT = """
import subprocess, sys, time
from functools import partial
from feature_store.process_end import end_with_parent

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                         preexec_fn=partial(end_with_parent, *map(int, sys.argv[1:])))
print(child.pid, flush=True)
time.sleep(60)
"""


@contextmanager
def started(code: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs this code, and does not outlive the block."""
    with subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("parent", "code"), [("os.getppid()", 0), ("os.getppid() + 1", -signal.SIGTERM)])
def test_a_process_whose_parent_ended_before_it_could_ask_ends_too(parent: str, code: int) -> None:
    with started("import os; from feature_store.process_end import end_with_parent; "
                 f"end_with_parent(parent={parent})") as process:
        assert process.wait(30) == code


def test_a_second_sigterm_does_not_cut_the_clean_up_short() -> None:
    with started(CLEANS_UP) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "cleaning up\n"
        process.send_signal(signal.SIGTERM)
        process.stdin.write("\n")
        process.stdin.flush()
        # what the clean-up started can be ended by SIGTERM, and what handled SIGTERM before does so again
        assert process.stdout.read().split("\n") == [f"cleaned up {-signal.SIGTERM}", "True", ""]
        assert process.wait(30) == 128 + signal.SIGTERM


def test_in_another_thread_the_block_runs_as_it_is() -> None:
    seen = []

    def run() -> None:
        with sigterm_as_exit():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("arguments", [(), (str(int(signal.SIGKILL)),)])
def test_a_child_ends_with_its_killed_parent(arguments: tuple[str, ...]) -> None:
    with started(PARENT, *arguments) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert not psutil.wait_procs([child], timeout=10)[1]
