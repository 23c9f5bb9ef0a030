"""The limit on memory holds at every stage, and what it ends is no verdict."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feature_store.errors import InputError, RefusedError
from models.verification.memory import is_lack_of_memory, within_memory
from tests.models.verification.onnx_files import dense_file

MORE = 1.2  # times the limit that a run may have in memory
MIB = 3000

PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.stdout + done.stderr)
"""


@pytest.mark.parametrize(("error", "lack"), [
    (MemoryError(), True), (torch.OutOfMemoryError("CUDA out of memory"), True),
    (torch.OutOfMemoryError(), True),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
    (RuntimeError("Exception during initialization: std::bad_alloc"), True),
    (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False), (ValueError("memory"), False)])
def test_what_a_lack_of_memory_looks_like(error: Exception, lack: bool) -> None:
    assert is_lack_of_memory(error) == lack


def _sum_of(report: Any, count: int) -> float:
    report("begun", count)
    return float(np.ones(count).sum())


def _end(report: Any, code: int) -> None:
    os._exit(code)


def _refuse(report: Any, said: str) -> None:
    assert report is None
    raise RefusedError(said)


def _until_interrupted(report: Any) -> str:
    try:
        report()
        time.sleep(60.0)
    except KeyboardInterrupt:
        return "interrupted"
    return "not interrupted"


def test_within_the_limit_there_is_no_more_and_what_is_done_comes_back() -> None:
    heard: list[Any] = []
    assert within_memory(MIB, _sum_of, lambda *state: heard.append(state), 1000) == 1000.0
    with pytest.raises(InputError, match=r"must suffice .* got MemoryError: Unable to allocate .* within 3000 MiB"):
        within_memory(MIB, _sum_of, lambda *state: heard.append(state), 2**30)  # 8 GiB
    assert heard == [("begun", 1000), ("begun", 2**30)]


@pytest.mark.parametrize("code", [0, 1, 139])
def test_a_process_that_ends_without_an_answer_has_said_nothing(code: int) -> None:
    with pytest.raises(InputError, match=rf"without an answer \(exit code {code}\)"):
        within_memory(MIB, _end, None, code)


def test_an_error_on_purpose_is_raised_as_it_is() -> None:
    with pytest.raises(RefusedError, match="as it is"):
        within_memory(MIB, _refuse, None, "as it is")


def test_an_interrupt_reaches_the_work_and_its_answer_is_waited_for() -> None:
    assert within_memory(MIB, _until_interrupted, lambda: os.kill(os.getpid(), signal.SIGINT)) == "interrupted"


@pytest.mark.parametrize(("limit_mib", "codes"), [(40, {2}), (330, {2, 3}), (480, {2, 3}), (4000, {1})])
def test_a_run_keeps_its_limit_and_says_so(tmp_path: Path, limit_mib: int, codes: set[int]) -> None:
    """2,000 x 2,000: some 620 MiB without a limit, and REFUTED."""
    random, sizes = np.random.default_rng(0), (20, 2000, 2000, 1)
    dense_file(tmp_path / "model.onnx", [random.standard_normal((out, width)) / np.sqrt(width)
                                         for width, out in pairwise(sizes)], [np.zeros(out) for out in sizes[1:]])
    names = [f"x{number}" for number in range(20)]
    (tmp_path / "spec.yaml").write_text(json.dumps({
        "features": names, "outputs": ["y"], "box": {name: [-1, 1] for name in names},
        "properties": [{"range": {"output": "y", "maximum": 0.9}}]}))
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(Path(sys.executable).parent / "assay"), "verify", "model.onnx", "-s",
         "spec.yaml", "--timeout", "60", "--memory", str(limit_mib)], cwd=tmp_path, capture_output=True, text=True,
        check=True)
    code, peak_kib, said = done.stdout.split(" ", 2)
    assert int(code) in codes, said
    assert "Traceback" not in said and (limit_mib == 4000 or "memory" in said)
    if limit_mib > 300:  # below, the code alone takes more
        assert int(peak_kib) <= MORE * 1024 * limit_mib
