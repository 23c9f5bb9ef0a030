"""What execution in floating point adds to a proof in real arithmetic: plain NumPy, no code of the search.

The file is run by somebody's runtime, in the type of its weights, with sums in any order and fused or not. Three facts
are established here about a chain v[k + 1] = relu or identity of W[k] v[k] + b[k] over a box:

1. `kept_order`: whether every path from an input to an output has the same sign. Then every neuron, as executed, rises
   or falls with that input: a product with a constant, a sum in a fixed order, a fused operation, a ReLU, a conversion
   and rounding itself never turn an order round, and neither does an underflow that is flushed. So execution adds
   nothing to a violation of the order, between two inputs that one and the same code is run on.
2. `execution_error`: how far the executed output can be from the exact one. Let e[k] bound |executed - exact| of v[k].
   A sum of m products is off by at most g(m) = m u / (1 - m u) times the sum of their absolute values (Higham, Accuracy
   and Stability, section 3.1), so that

       e[k + 1] = |W| e[k] + g(m + 1) (|W| (|v| + e[k]) + |b|) + underflow        m: non-zero weights of a row

   It holds for every order of summation, and therefore grows with the width: some 5e-4 of the output's range for two
   layers of 300 in float32 where 2e-7 is seen (docs/decisions/0010).

3. `kept_limits`: between which numbers the executed output lies whatever is fed, where the last layers only turn and
   shift what a ReLU gives: rounding is monotone, so that m + relu(z) is never below a number m of the type.

All terms are >= 0, so that computing them in float64 is off by a relative 1e-12 at most; GROWN covers it.

Symbols: n inputs, o outputs, w neurons of a layer; weights[k] (w[k], w[k - 1]), biases[k] (w[k],), in float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.verification.checker.archive import Array, Mask
from models.verification.checker.bounds import Box, bound_layers
from models.verification.checker.chain import Chain
from models.verification.checker.relaxations import identity, relu
from models.verification.checker.time_limit import require_time

GROWN = 1 + 1e-9


@dataclass(frozen=True)
class Arithmetic:
    """A floating-point type: unit roundoff u, smallest normal number (less may be flushed to 0), largest number."""

    name: str
    unit: float
    tiny: float
    largest: float

    @classmethod
    def of(cls, dtype: np.dtype[np.floating]) -> "Arithmetic":
        """Of float16, float32 or float64."""
        info = np.finfo(dtype)
        return cls(np.dtype(dtype).name, float(info.eps) / 2, float(info.tiny), float(info.max))


def kept_order(weights: Sequence[Array], feature: int, sign: int) -> Mask:
    """(o,): whether, along every path, the output never falls (sign 1) or never rises (-1) with the input."""
    rises, falls = np.zeros(weights[0].shape[1], dtype=bool), np.zeros(weights[0].shape[1], dtype=bool)
    rises[feature] = True
    for weight in weights:
        require_time()
        up, down = weight > 0, weight < 0
        rises, falls = _reached(up, rises) | _reached(down, falls), _reached(up, falls) | _reached(down, rises)
    return ~falls if sign > 0 else ~rises


def kept_limits(chain: Chain) -> tuple[Array, Array]:
    """(o,), (o,): between which numbers the outputs lie as executed, if none is NaN; infinite: nothing is known.

    Of layers with a single entry a row, 1 or -1, whose bias is no number that may be flushed to 0: a ReLU gives 0 or
    more, and what is shifted and rounded keeps its side. What else a layer does, loses the limits until the next ReLU.
    """
    low = np.full(chain.weights[0].shape[1], -np.inf)
    high, tiny = -low, float(np.finfo(chain.executed).tiny)
    with np.errstate(over="ignore"):
        for weight, bias, follows in zip(chain.weights, chain.biases, (*chain.relus, False), strict=True):
            column = np.argmax(weight != 0, axis=1)
            sign = weight[np.arange(len(weight)), column]
            plain = (np.count_nonzero(weight, axis=1) == 1) & (np.abs(sign) == 1)
            plain &= (bias == 0) | (np.abs(bias) >= tiny)
            least, most = np.where(sign > 0, [low[column], high[column]], [-high[column], -low[column]]) + bias
            low, high = _rounded(np.where(plain, least, -np.inf), np.where(plain, most, np.inf), chain.executed)
            if follows:
                low, high = np.maximum(low, 0), np.maximum(high, 0)
        return _rounded(low, high, chain.fed)


def _rounded(low: Array, high: Array, dtype: np.dtype[np.floating]) -> tuple[Array, Array]:
    """Limits of what lay between these, in a type whose smallest numbers may be flushed to 0."""
    low, high = (end.astype(dtype).astype(np.float64) for end in (low, high))
    tiny = np.finfo(dtype).tiny
    return np.where((low > 0) & (low < tiny), 0.0, low), np.where((high < 0) & (high > -tiny), 0.0, high)


def execution_error(weights: Sequence[Array], biases: Sequence[Array], lower: Array, upper: Array,
                    relus: Sequence[bool], arithmetic: Arithmetic) -> Array:
    """(o,): upper bound of |executed - exact output| over the box (n,); infinite where a number may overflow.

    relus: after which layers but the last a ReLU stands. The input is taken to be exact: what the runtime is fed.
    """
    box = Box(lower[None], upper[None])
    lines = [relu if follows else identity for follows in (*relus, False)]
    with np.errstate(over="ignore", invalid="ignore"):
        layers = bound_layers(weights, biases, box, lines, tight=False)
        size = np.maximum(np.abs(lower), np.abs(upper))
        error = np.zeros_like(size)
        for weight, bias, layer, follows in zip(weights, biases, layers, (*relus, False), strict=True):
            require_time()
            magnitude, terms = np.abs(weight), (weight != 0).sum(axis=1) + 1
            u = terms * arithmetic.unit
            whole = magnitude @ (size + error) + np.abs(bias)
            lost = arithmetic.tiny * (4 * terms + magnitude.sum(axis=1) + (size + error).sum())
            error = (magnitude @ error + np.where(u < 1, u / (1 - u), np.inf) * whole + lost) * GROWN
            overflow = ~(whole + error < arithmetic.largest)
            low, high = layer.low[0], layer.high[0]
            size = np.maximum(np.abs(low), np.abs(high))
            if follows:
                size, error = np.maximum(high, 0), np.where(high + error <= 0, 0, error)
            error = np.where(overflow | np.isnan(size) | np.isnan(error), np.inf, error)
    return np.asarray(error)


def chain_error(chain: Chain, lower: Array, upper: Array) -> Array:
    """(o,): how far what the file gives can be from the exact outputs, over a box (n,) and what is fed for its walls.

    A file that computes in float64 ends with a conversion to float32, which may turn any difference into one step of
    that type: half of one counts for each value. Infinite where a number may overflow.
    """
    with np.errstate(over="ignore"):
        low, high = (np.nextafter(wall.astype(chain.fed), chain.fed.type(side)).astype(np.float64)
                     for wall, side in ((lower, -np.inf), (upper, np.inf)))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return np.full(len(chain.biases[-1]), np.inf)
    error = execution_error(chain.weights, chain.biases, low, high, chain.relus, Arithmetic.of(chain.executed))
    if chain.executed == chain.fed:
        return error
    lines = [relu if follows else identity for follows in (*chain.relus, False)]
    with np.errstate(over="ignore", invalid="ignore"):
        last = bound_layers(chain.weights, chain.biases, Box(low[None], high[None]), lines)[-1]
        largest = (np.maximum(np.abs(last.low[0]), np.abs(last.high[0])) + error).astype(chain.fed)
        step = np.spacing(largest).astype(np.float64)
        return np.asarray(np.where(np.isfinite(step), error + step / 2, np.inf))


def _reached(matrix: Mask, sources: Mask) -> Mask:
    """Which rows (w,) have an entry in a column of `sources`."""
    return np.asarray(matrix[:, sources].any(axis=1))
