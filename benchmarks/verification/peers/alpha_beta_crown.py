"""alpha-beta-CROWN's complete verifier on the slope as the output of a network with a Jacobian; it splits the input.

Its own attack looks for a wrong slope first (projected gradient descent, its defaults). Smart branching ("sb"), its
default for few inputs, needs linear coefficients of the input that the relaxed gradient does not have: it raises an
AssertionError; "naive" halves the widest side. Its batches of boxes need the repair of jacobian.py: without it they
are unsound and a hundred times slower.
"""

import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch

from benchmarks.verification.peers.jacobian import SignedSlope, repair_batches
from benchmarks.verification.peers.question import Clock, PeerResult, Question, pairs_around, refuted
from models.verification.verdict import Status

BATCH_NUMBERS = 1_500_000  # see auto_lirpa.py
# Imported by its modules, unused on this path: the MILP back end, readers of ONNX files, image data sets.
UNUSED = ("gurobipy", "onnx2pytorch", "onnxoptimizer", "onnxruntime", "onnx", "torchvision", "torchvision.datasets",
          "torchvision.transforms", "skl2onnx", "skl2onnx.helpers", "skl2onnx.helpers.onnx_helper")


def solve(question: Question, seconds: float, threads: int) -> PeerResult:
    """Peer; see question.py."""
    clock = Clock()
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        counterexample = Path(folder) / "counterexample.txt"
        solver = _solver(question, seconds, counterexample)
        setup = clock.seconds
        clock = Clock()
        outcome = solver.solve(return_reference=False)
        took = clock.seconds
        saved = counterexample.read_text() if counterexample.is_file() else ""
    if outcome.status.startswith("safe"):
        return PeerResult(Status.PROVED, f"it says {outcome.status}", took, setup)
    if outcome.status.startswith("unsafe"):
        # VNN-COMP's form: a line (X_0 0.25) for each input
        point = np.array([float(value) for value in re.findall(r"\(X_\d+\s+([^\s)]+)\)", saved)])
        if len(point) != question.network.inputs:
            return PeerResult(Status.UNKNOWN, f"it says {outcome.status} and leaves no counterexample", took, setup)
        return refuted(question, *pairs_around(question, point), f"it says {outcome.status}", took, setup)
    if took >= seconds:
        return PeerResult(Status.TIMEOUT, f"it ran out of its {seconds:g} s", took, setup)
    return PeerResult(Status.UNKNOWN, f"it says {outcome.status}", took, setup)


def _solver(question: Question, seconds: float, counterexample: Path) -> Any:
    for name in UNUSED:
        try:
            importlib.import_module(name)
        except (ImportError, RuntimeError):  # RuntimeError: a torchvision built for another torch
            sys.modules[name] = MagicMock()
    import api  # a top-level module of its complete_verifier folder

    repair_batches()
    widest = max(len(bias) for bias in question.network.biases)
    batch = min(max(BATCH_NUMBERS // widest**2, 8), 4096)
    walls = (torch.as_tensor(wall, dtype=torch.float32)[None] for wall in (question.lower, question.upper))
    # its clauses describe what is unsafe: 1 * slope <= -tolerance
    unsafe = [(torch.ones(1, 1), torch.tensor([-question.tolerance]))]
    specification = api.VerificationSpec.build_from_input_bounds(*walls, unsafe)
    configuration = api.ConfigBuilder.from_defaults().update({
        "general": {"device": "cpu", "precompile_jit": False, "complete_verifier": "bab", "save_adv_example": True},
        "attack": {"cex_path": str(counterexample)},
        "model": {"with_jacobian": True},
        "solver": {"bound_prop_method": "crown", "batch_size": batch},
        "bab": {"timeout": seconds, "branching": {"method": "naive", "input_split": {"enable": True}}},
    })
    return api.ABCrownSolver(specification, SignedSlope(question), config=configuration)
