"""SCIP (PySCIPOpt) on the two-copy mixed-integer program; on several threads, as many of its solvers race."""

from typing import Any

import numpy as np

from benchmarks.verification.peers.big_m import MixedIntegerProgram, mixed_integer_program
from benchmarks.verification.peers.question import Clock, PeerResult, Question, refuted
from models.verification.verdict import Status

# See highs.py; SCIP's own is 1e-6 too.
FEASIBILITY = 1e-9


def solve(question: Question, seconds: float, threads: int) -> PeerResult:
    """Peer; see question.py."""
    clock = Clock()
    import pyscipopt

    program = mixed_integer_program(question)
    model, columns = _model(pyscipopt, program)
    model.setParams({"limits/time": seconds, "limits/solutions": 1, "numerics/feastol": FEASIBILITY,
                     "parallel/minnthreads": threads, "parallel/maxnthreads": threads})
    setup = clock.seconds
    clock = Clock()
    if threads > 1:
        model.solveConcurrent()
    else:
        model.optimize()
    took = clock.seconds
    status = model.getStatus()
    if status in ("infeasible", "inforunbd"):
        return PeerResult(Status.PROVED, "the program has no solution", took, setup)
    if model.getNSols():
        values = np.array([model.getVal(column) for column in columns])
        low, high = program.copies.points(values)
        return refuted(question, low, high, "the program has a solution", took, setup)
    if status == "timelimit":
        return PeerResult(Status.TIMEOUT, f"it ran out of its {seconds:g} s", took, setup)
    return PeerResult(Status.UNKNOWN, f"it ended with: {status}", took, setup)


def _model(pyscipopt: Any, program: MixedIntegerProgram) -> tuple[Any, list[Any]]:
    """The program and its variables, in their order."""
    model = pyscipopt.Model()
    model.hideOutput()
    kinds = np.full(len(program.lower), "C")
    kinds[program.binaries] = "B"
    columns = [model.addVar(lb=float(low), ub=float(high), vtype=str(kind))
               for low, high, kind in zip(program.lower, program.upper, kinds, strict=True)]
    for row in program.rows:
        terms = pyscipopt.quicksum(float(value) * columns[index]
                                   for index, value in zip(row.indices, row.coefficients, strict=True))
        model.addCons(terms >= row.constant if row.at_least else terms == row.constant)
    model.setObjective(columns[program.copies.violation], "maximize")
    return model, columns
