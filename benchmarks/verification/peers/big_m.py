"""The two-copy question as a mixed-integer linear program: one binary an unstable ReLU (Tjeng et al., ICLR 2019).

    a >= 0,  a >= z,  a <= z - l (1 - d),  a <= u d,  d in {0, 1};  active: a = z;  inactive: a = 0

The program maximises v, whose lower bound is the smallest violation sought: any feasible point is a counterexample,
an infeasible program is a proof.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.verification.peers.question import Question
from benchmarks.verification.peers.two_copies import Indices, Row, TwoCopies, two_copies
from models.verification.language.specification import FloatArray


@dataclass(frozen=True)
class MixedIntegerProgram:
    """maximise variable `violation` of `question` over the rows; the variables numbered `binaries` are 0 or 1."""

    lower: FloatArray
    upper: FloatArray
    rows: tuple[Row, ...]
    binaries: Indices
    copies: TwoCopies


def mixed_integer_program(question: Question) -> MixedIntegerProgram:
    """Encodes the question; sizes follow the number of neurons that are unstable on the box."""
    copies = two_copies(question)
    lower, upper = copies.lower.copy(), copies.upper.copy()
    rows = list(copies.rows)
    binaries: list[int] = []
    for z, a in copies.relus:
        low, high = copies.lower[z], copies.upper[z]
        if high <= 0:
            lower[a] = upper[a] = 0.0
        elif low >= 0:
            rows.append(_row([a, z], [1.0, -1.0], 0.0, at_least=False))
        else:
            d = len(lower) + len(binaries)
            binaries.append(d)
            rows += [_row([a, z], [1.0, -1.0], 0.0), _row([z, a, d], [1.0, -1.0, low], low),
                     _row([d, a], [high, -1.0], 0.0)]
    lower = np.concatenate([lower, np.zeros(len(binaries))])
    upper = np.concatenate([upper, np.ones(len(binaries))])
    return MixedIntegerProgram(lower, upper, tuple(rows), np.array(binaries, dtype=np.int64), copies)


def _row(indices: list[int], coefficients: list[float], constant: float, at_least: bool = True) -> Row:
    return Row(np.array(indices), np.array(coefficients), constant, at_least)
