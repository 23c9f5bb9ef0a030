"""HiGHS (highspy) on the two-copy mixed-integer program. Its presolve, cuts and heuristics as they come."""

from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.verification.peers.big_m import MixedIntegerProgram, mixed_integer_program
from benchmarks.verification.peers.question import Clock, PeerResult, Question, refuted
from models.verification.verdict import Status

# Three digits below the smallest violation sought: HiGHS's own 1e-6 would let a violation of 0 pass.
FEASIBILITY = 1e-9


def solve(question: Question, seconds: float, threads: int) -> PeerResult:
    """Peer; see question.py."""
    clock = Clock()
    highspy: Any = import_module("highspy")

    program = mixed_integer_program(question)
    solver = highspy.Highs()
    options = {"output_flag": False, "threads": threads, "time_limit": seconds, "mip_max_improving_sols": 1,
               "mip_feasibility_tolerance": FEASIBILITY, "primal_feasibility_tolerance": FEASIBILITY}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_model(highspy, program))
    setup = clock.seconds
    clock = Clock()
    solver.run()
    took = clock.seconds
    status = solver.getModelStatus()
    known = highspy.HighsModelStatus
    values = np.array(solver.getSolution().col_value)
    if status in (known.kInfeasible, known.kUnboundedOrInfeasible):
        return PeerResult(Status.PROVED, "the program has no solution", took, setup)
    if status in (known.kOptimal, known.kSolutionLimit) and len(values):
        low, high = program.copies.points(values)
        return refuted(question, low, high, "the program has a solution", took, setup)
    if status == known.kTimeLimit:
        return PeerResult(Status.TIMEOUT, f"it ran out of its {seconds:g} s", took, setup)
    return PeerResult(Status.UNKNOWN, f"it ended with: {solver.modelStatusToString(status)}", took, setup)


def _model(highspy: Any, program: MixedIntegerProgram) -> Any:
    """The program as HighsLp, row by row."""
    lp = highspy.HighsLp()
    columns = len(program.lower)
    lp.num_col_, lp.num_row_ = columns, len(program.rows)
    cost = np.zeros(columns)
    cost[program.copies.violation] = 1.0
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, program.lower, program.upper
    constants = np.array([row.constant for row in program.rows])
    lp.row_lower_ = constants
    lp.row_upper_ = np.where([row.at_least for row in program.rows], highspy.kHighsInf, constants)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0] + [len(row.indices) for row in program.rows])
    lp.a_matrix_.index_ = np.concatenate([row.indices for row in program.rows])
    lp.a_matrix_.value_ = np.concatenate([row.coefficients for row in program.rows])
    kinds = [highspy.HighsVarType.kContinuous] * columns
    for number in program.binaries:
        kinds[number] = highspy.HighsVarType.kInteger
    lp.integrality_ = kinds
    return lp
