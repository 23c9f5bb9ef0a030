"""Tensors as affine expressions of a network's sources, and the arithmetic on them, every rounding bounded.

What onnx_reader.py executes a file on. ARITHMETIC has, by ONNX operator, what takes attributes and operands to an
expression; operands are expressions or constant arrays. LEARNED has the same of ONNX-ML, by which scikit-learn's models
are exported, with constants in attributes.

Rounding. u = 2^-53. |computed - exact| <= k u / (1 - k u) |A| |M| for a product of k terms (Higham, Accuracy and
Stability, section 3.1). 2 k u |A| |M|, and a factor 1 + 4 (k + 4) u on each sum of bounds, cover the rounding of the
bounds themselves; TINY covers underflow. The error of a sum of two is computed exactly (Knuth's TwoSum); of one that
cancels it is taken to be at least what rounding both would cost, for by its size runtime_agreement.py knows how much a
file loses that is executed in a smaller type. To select,
to negate and to multiply what is no more than selected rounds nothing, so that plain chains of layers are exact.

Symbols: an expression has s values; source 0 is x, source k + 1 the output of layer k.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.checker.time_limit import seconds_left
from models.verification.network.graph import FloatArray

UNIT, TINY = 2.0**-53, 1e-290
LARGEST = 2**27  # values of an array, 1 GiB: far above what bounds can be computed of, and an end to nonsense
# Multiplications to compose the maps of one file, where there is no time limit, a minute's; where there is one, what is
# done in the time that is left. Each value that is written counts as VALUE of them.
MOST_WORK, A_SECOND, VALUE = 2**36, 2**30, 16
OFFSET = -1  # the source of one value, 1: an expression's offset is its matrix (s, 1)

Array = NDArray[Any]
Index = NDArray[np.int64]
Attributes = Mapping[str, Any]
Part = tuple[FloatArray | None, FloatArray | None]


@dataclass(frozen=True)


class Expression:
    """A tensor of s values: the sum over its sources of matrix @ v, in C order.

    parts: source -> matrix (s, size of the source), None for the identity, and the entrywise bound of its error,
    None for exact.
    """

    shape: tuple[int, ...]
    parts: Mapping[int, Part]

    def __post_init__(self) -> None:
        require_room(*self.shape)

    @property
    def index(self) -> Index:
        """Each value's place in C order, in the tensor's shape."""
        return np.arange(math.prod(self.shape)).reshape(self.shape)

    def width(self, source: int) -> int:
        """The size of a source."""
        matrix = self.parts[source][0]
        return math.prod(self.shape) if matrix is None else matrix.shape[1]

    def dense(self, source: int, rows: Index | None = None) -> FloatArray:
        """The matrix (s, size of the source), or these rows of it."""
        matrix, size = self.parts[source][0], math.prod(self.shape)
        require_room(size if rows is None else len(rows), self.width(source))
        if matrix is not None:
            return matrix if rows is None else matrix[rows]
        if rows is None:
            return np.eye(size)
        chosen = np.zeros((len(rows), size))
        chosen[np.arange(len(rows)), rows] = 1
        return chosen

    def at(self, index: Index) -> "Expression":
        """The values at these places, in the shape of `index`: exact."""
        require_room(index.size)
        rows = index.ravel()
        if np.array_equal(rows, np.arange(math.prod(self.shape))):
            return Expression(index.shape, self.parts)
        return Expression(index.shape, {source: (self.dense(source, rows), None if error is None else error[rows])
                                        for source, (_, error) in self.parts.items()})


Value = Expression | Array


def require_room(*sizes: int) -> None:
    """Raises InputError for an array of these sizes that is too large."""
    if math.prod(sizes) > LARGEST:
        raise InputError(f"arrays must have at most {LARGEST} values, got {' x '.join(map(str, sizes))}")


def require_work(work: int) -> None:
    """Raises InputError for more multiplications than a file may take."""
    left = seconds_left()
    allowed = MOST_WORK if math.isinf(left) else max(left, 0.0) * A_SECOND
    if work > allowed:
        raise InputError(f"maps without an activation between them must be composed in at most {allowed:,.0f} "
                         f"multiplications, got {work:,}: give more time, or multiply their weights together before "
                         "the export")


def work_of(x: Expression, rows: int) -> int:
    """Multiplications to apply a matrix of so many rows."""
    return rows * math.prod(x.shape) * sum(m.shape[1] for m, _ in x.parts.values() if m is not None)


def _expression(value: Value) -> Expression:
    if isinstance(value, Expression):
        return value
    return Expression(value.shape, {OFFSET: (value.astype(np.float64).reshape(-1, 1), None)})


def _bound(terms: int, *errors: FloatArray | None) -> FloatArray | None:
    """The sum of error bounds, rounded outward; each was a sum of at most this number of terms."""
    total = np.asarray(sum(error for error in errors if error is not None))
    return total * (1 + 4 * (terms + 4) * UNIT) if total.any() else None


def _added(first: Value, second: Value) -> Expression:
    a, b = _expression(first), _expression(second)
    a, b = (x.at(index) for x, index in zip((a, b), np.broadcast_arrays(a.index, b.index), strict=True))
    parts = {**a.parts, **b.parts}
    for source in set(a.parts) & set(b.parts):
        m, n = a.dense(source), b.dense(source)
        total = m + n
        back = total - m
        lost = np.abs((m - (total - back)) + (n - back))
        size = np.maximum(np.abs(m), np.abs(n))
        lost = np.where(np.abs(total) < size / 2, np.maximum(lost, 2 * UNIT * size), lost)
        parts[source] = total, _bound(1, lost, a.parts[source][1], b.parts[source][1])
    return Expression(a.shape, parts)


def _negative(value: Value) -> Expression:
    x = _expression(value)
    return Expression(x.shape, {source: (-x.dense(source), error) for source, (_, error) in x.parts.items()})


def _scaled(value: Value, factor: Value, apply: np.ufunc = np.multiply, doubt: float = 0.0) -> Expression:
    """np.multiply or np.divide of a value by a factor, whose own relative error is at most `doubt`."""
    if isinstance(factor, Expression) or not isinstance(value, Expression):
        raise InputError("one of two factors, and a divisor, must be constant, got a variable")
    if apply is np.divide and not factor.all():
        raise InputError("divisor must not be 0, got 0")
    index, factors = np.broadcast_arrays(value.index, factor.astype(np.float64))
    x, column, parts = value.at(index), factors.reshape(-1, 1), dict[int, Part]()
    for source, (_, error) in x.parts.items():
        m = x.dense(source)
        plain = (column == 0) | (np.abs(column) == 1) | ((apply is np.multiply) & (np.abs(m) == 1))
        result, exact = apply(m, column), (m == 0) | (plain & (doubt == 0))
        passed = None if error is None else apply(error, np.abs(column)) * (1 + doubt) + TINY
        parts[source] = result, _bound(4, np.where(exact, 0, (UNIT + doubt) * np.abs(result) + TINY), passed)
    return Expression(index.shape, parts)


def _product(a: Value, b: Value) -> Expression:
    """np.matmul with a constant on either side."""
    if isinstance(a, Expression) and isinstance(b, Expression):
        raise InputError("one of two factors must be constant, got two variables")
    if not isinstance(a, Expression) and not isinstance(b, Expression):  # of a Gemm that adds a variable
        a = _expression(a)
    x = a if isinstance(a, Expression) else _expression(b)
    left, right = (v.index if isinstance(v, Expression) else v.astype(np.float64) for v in (a, b))
    left = left.reshape(1, -1) if left.ndim == 1 else left
    right = right.reshape(-1, 1) if right.ndim == 1 else right
    if left.shape[-1] != right.shape[-2]:
        raise InputError(f"inner sizes must be equal, got shapes {a.shape} and {b.shape}")
    left, right = np.broadcast_arrays(left[..., None], right[..., None, :, :])  # (..., m, k, p)
    *batch, m, _, p = left.shape
    require_room(*batch, m, p, *x.shape)
    rows = np.arange(left[..., 0, :].size).reshape(*batch, m, 1, p)
    matrix = np.zeros((rows.size, x.index.size))
    matrix[rows, left if x is a else right] = right if x is a else left
    return _mapped(matrix, x, (*batch, *[m] * (len(a.shape) > 1), *[p] * (len(b.shape) > 1)))


def _mapped(matrix: FloatArray, x: Expression, shape: tuple[int, ...]) -> Expression:
    """matrix @ x for an exact matrix (values of the shape, s)."""
    require_work(work_of(x, len(matrix)))
    parts, size, terms = dict[int, Part](), np.abs(matrix), matrix.shape[1]
    for source, (m, error) in x.parts.items():
        if m is None:
            parts[source] = matrix, None
            continue
        lost = 2 * terms * UNIT * (size @ np.abs(m)) + TINY
        lost[_selects(matrix)] = 0
        lost[:, _selects(m.T)] = 0
        parts[source] = matrix @ m, _bound(terms, lost, None if error is None else size @ error + TINY)
    return Expression(shape, parts)


def _selects(matrix: FloatArray) -> NDArray[np.bool_]:
    """Which rows are of zeros but for at most one entry, 1 or -1."""
    rows: NDArray[np.bool_] = (np.count_nonzero(matrix, axis=1) <= 1) & np.isin(np.abs(matrix).sum(axis=1), (0, 1))
    return rows


def _gemm(attributes: Attributes, a: Value, b: Value, c: Value | None = None) -> Expression:
    a, b = (_transposed(v) if attributes.get(name) else v for v, name in ((a, "transA"), (b, "transB")))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise InputError(f"operands must be matrices, got shapes {a.shape} and {b.shape}")
    alpha, beta = (np.array(attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    product = _product(a, b) if alpha == 1 else _scaled(_product(a, b), alpha)
    if c is None:
        return product
    total = _added(product, c if beta == 1 else _scaled(_expression(c), beta))
    if total.shape != product.shape:
        raise InputError(f"C must broadcast to {product.shape}, got shape {c.shape}")
    return total


def _transposed(value: Value) -> Value:
    return value.at(value.index.T) if isinstance(value, Expression) else value.T


def _normalized(attributes: Attributes, x: Value, *constants: Value) -> Expression:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias over axis 1; the factor is rounded three times."""
    if not isinstance(x, Expression) or any(isinstance(constant, Expression) for constant in constants):
        raise InputError("scale, bias, mean and variance must be constant, got a variable")
    if any(constant.shape != x.shape[1:2] for constant in constants):
        raise InputError(f"scale, bias, mean and variance must fit the channels, got {[c.shape for c in constants]}")
    scale, bias, mean, variance = (np.asarray(constant, dtype=np.float64).reshape(-1, *[1] * (len(x.shape) - 2))
                                   for constant in constants)
    factor = scale / np.sqrt(variance + attributes.get("epsilon", float(np.float32(1e-5))))
    if not (np.isfinite(factor) & ((scale == 0) | (np.abs(factor) > 2.0**-900))).all():
        raise InputError("scale / sqrt(variance + epsilon) must be a normal number, got NaN, infinity or nearly 0")
    return _added(_scaled(_added(x, -mean), factor, doubt=8 * UNIT), bias)


def _concatenated(attributes: Attributes, *operands: Value) -> Expression:
    values = [_expression(operand) for operand in operands]
    first = np.cumsum([0, *(value.index.size for value in values)])
    index = np.concatenate([v.index + at for v, at in zip(values, first, strict=False)], axis=attributes["axis"])
    parts = dict[int, Part]()
    for source in {source for value in values for source in value.parts}:
        blocks = {int(at): v for at, v in zip(first, values, strict=False) if source in v.parts}
        width = next(iter(blocks.values())).width(source)
        require_room(int(first[-1]), width)
        matrix = np.zeros((first[-1], width))
        bound = np.zeros_like(matrix)
        for at, value in blocks.items():
            rows, error = slice(at, at + value.index.size), value.parts[source][1]
            matrix[rows], bound[rows] = value.dense(source), 0 if error is None else error
        parts[source] = matrix, _bound(0, bound)
    return Expression((int(first[-1]),), parts).at(index)


ARITHMETIC: Mapping[str, Callable[..., Expression]] = {
    "Add": lambda _, a, b: _added(a, b),
    "BatchNormalization": _normalized,
    "Concat": _concatenated,
    "Div": lambda _, a, b: _scaled(a, b, np.divide),
    "Gemm": _gemm,
    "MatMul": lambda _, a, b: _product(a, b),
    "Mul": lambda _, a, b: _scaled(a, b) if isinstance(a, Expression) else _scaled(b, a),
    "Neg": lambda _, a: _negative(a),
    "Sub": lambda _, a, b: _added(a, _negative(b)),
}


def _standardised(attributes: Attributes, x: Expression) -> Expression:
    """ONNX-ML's Scaler: (x - offset) * scale, a value of each a feature or one for all."""
    if set(attributes) != {"offset", "scale"}:
        raise InputError(f"attributes must be offset and scale, got {', '.join(attributes) or 'none'}")
    offset, scale = (np.array(attributes[name]) for name in ("offset", "scale"))
    if any(len(values) not in (1, x.shape[-1]) for values in (offset, scale)) or len(x.shape) != 2:
        raise InputError(f"offset and scale must fit {x.shape}, got {len(offset)} and {len(scale)} values")
    return _scaled(_added(x, -offset), scale)


def _regressed(attributes: Attributes, x: Expression) -> Expression:
    """ONNX-ML's LinearRegressor: coefficients (targets, n) @ x + intercepts."""
    unknown = set(attributes) - {"coefficients", "intercepts", "targets", "post_transform"}
    if unknown or attributes.get("post_transform", b"NONE") != b"NONE" or len(x.shape) != 2:
        raise InputError("LinearRegressor must be of one row, without a transformation after it, got "
                         f"{attributes.get('post_transform', x.shape)!r} {', '.join(unknown)}".rstrip())
    weight = np.array(attributes["coefficients"]).reshape(attributes.get("targets", 1), -1)
    product = _product(x, weight.T)
    bias = attributes.get("intercepts")
    if bias is not None and len(bias) != len(weight):
        raise InputError(f"intercepts must fit the targets, got {len(bias)} for {len(weight)}")
    return product if bias is None else _added(product, np.array(bias))


LEARNED: Mapping[str, Callable[[Attributes, Expression], Expression]] = {
    "LinearRegressor": _regressed, "Scaler": _standardised}
