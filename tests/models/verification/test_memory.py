"""The limit on memory holds at every stage, and what it ends is no verdict."""

import json
import resource
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from models.verification.memory import is_lack_of_memory, memory_limit
from tests.models.verification.onnx_files import dense_file

MORE = 1.2  # times the limit that a run may have in memory

IN_A_PROCESS = """
import numpy as np
from models.verification.memory import is_lack_of_memory, memory_limit
with memory_limit(400):
    try:
        np.ones(2**27)
    except MemoryError as error:
        assert is_lack_of_memory(error)
    else:
        raise SystemExit("a gigabyte was had")
assert np.ones(2**27).sum() == 2**27
"""
PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.stdout + done.stderr)
"""


@pytest.mark.parametrize(("error", "lack"), [
    (MemoryError(), True), (torch.OutOfMemoryError("CUDA out of memory"), True),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
    (RuntimeError("Exception during initialization: std::bad_alloc"), True),
    (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False), (ValueError("memory"), False)])
def test_what_a_lack_of_memory_looks_like(error: Exception, lack: bool) -> None:
    assert is_lack_of_memory(error) == lack


def test_inside_of_the_limit_there_is_no_more_and_behind_it_there_is() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_limit(None):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.slow
@pytest.mark.parametrize(("limit_mib", "codes"), [(40, {2}), (330, {2, 3}), (450, {2, 3}), (4000, {1})])
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
