"""Marabou (maraboupy) on the two-copy question: simplex with lazy ReLU splits, DeepPoly bounds (Wu et al., CAV 2024).

More than one thread means its split-and-conquer mode. Version 2.0.0 accepts ReLUs that are wrong by 1e-4 to 1e-3
(measured), far more than the violations sought: asked as it stands, it answers with two equal points whose outputs
"differ" by the smallest violation. So it gets the question in its favour: every variable SCALE times as large, and no
pairs nearer than NEAREST of the feature's side; its proofs say nothing of those. Points that still do not replay make
the answer UNKNOWN.
"""

import math
from typing import Any

import numpy as np

from benchmarks.verification.peers.question import Clock, PeerResult, Question, refuted
from benchmarks.verification.peers.two_copies import TwoCopies, two_copies
from models.verification.verdict import Status

# Larger scales make its answers wrong: at 1e6 it "proved" a network that falls.
SCALE = 1e3
NEAREST = 1e-4


def solve(question: Question, seconds: float, threads: int) -> PeerResult:
    """Peer; see question.py. Its time limit is in whole seconds."""
    clock = Clock()
    from maraboupy import Marabou, MarabouCore

    side = float(question.upper[question.feature] - question.lower[question.feature])
    copies = two_copies(question, NEAREST * side)
    query = _query(MarabouCore, copies.scaled(SCALE))
    options = Marabou.createOptions(timeoutInSeconds=math.ceil(seconds), verbosity=0, snc=threads > 1,
                                    numWorkers=threads, numBlasThreads=1)
    setup = clock.seconds
    clock = Clock()
    code, values, _ = MarabouCore.solve(query, options, "")
    took = clock.seconds
    if code == "unsat":
        return PeerResult(Status.PROVED, f"no pair at least {NEAREST:g} of the side apart violates it", took, setup)
    if code == "sat":
        low, high = copies.points(np.array([values[number] for number in range(copies.inputs + 1)]) / SCALE)
        return refuted(question, low, high, "the query has a solution", took, setup)
    if code.upper() == "TIMEOUT":
        return PeerResult(Status.TIMEOUT, f"it ran out of its {seconds:g} s", took, setup)
    return PeerResult(Status.UNKNOWN, f"it ended with: {code}", took, setup)


def _query(core: Any, copies: TwoCopies) -> Any:
    query = core.InputQuery()
    query.setNumberOfVariables(len(copies.lower))
    for number, (low, high) in enumerate(zip(copies.lower, copies.upper, strict=True)):
        query.setLowerBound(number, float(low))
        query.setUpperBound(number, float(high))
    for place in range(copies.inputs + 1):
        query.markInputVariable(place, place)
    query.markOutputVariable(copies.violation, 0)
    for row in copies.rows:
        equation = core.Equation(core.Equation.GE if row.at_least else core.Equation.EQ)
        for index, value in zip(row.indices, row.coefficients, strict=True):
            equation.addAddend(float(value), int(index))
        equation.setScalar(float(row.constant))
        query.addEquation(equation)
    for z, a in copies.relus:
        core.addReluConstraint(query, int(z), int(a))
    return query
