"""Tests and what they start use one thread each (tests/conftest.py)."""

import subprocess
import sys

import torch

COUNT = "import torch; print(torch.get_num_threads())"


def test_one_thread_here_and_in_what_a_test_starts() -> None:
    started = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    assert torch.get_num_threads() == int(started.stdout) == 1
