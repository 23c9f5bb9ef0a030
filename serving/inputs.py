"""Turns raw telemetry rows into the model's float32 matrix, and refuses what it cannot mean.

Between a controller's numbers and onnxruntime stand, in this order:

    1. columns    exactly the contract's names; a wrong one is answered with the nearest name
    2. numbers    no text, no truth value, no NaN, no infinity
    3. physics    [physical_minimum, physical_maximum]: a pressure of 37 is a unit mix-up, not a load
    4. proof      [minimum, maximum], the verified box: a value outside is moved to its edge and
                  reported, so that the proof covers every answer that is given; an input with finitely many
                  values must have one of them, and of a one-hot group one is 1 and the others are 0

Shapes: rows [rows, inputs] float64, raw units -> matrix [rows, inputs] float32 inside the box exactly.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest
from serving.contract import Contract, InputSpec

# An unbounded quantity still has to be finite: infinity is above the largest float.
_LARGEST = sys.float_info.max
_PERCENT = 100.0
_HINTS = 3  # misspelt columns that a message helps with


@dataclass(frozen=True)
class _Limit:
    """Bounds of one input as Python floats: comparing these costs a tenth of a numpy call."""

    name: str
    low: float
    high: float
    physical_low: float
    physical_high: float
    low32: float
    high32: float


class InputReader:
    """Checks rows against one contract. Holds no state: threads may share it."""

    def __init__(self, contract: Contract) -> None:
        self._specs = {item.name: item for item in contract.inputs}
        self._names = contract.input_names
        self._known = frozenset(self._names)
        self._limits = tuple(_limit(item) for item in contract.inputs)
        self._values = {number: item.values for number, item in enumerate(contract.inputs) if item.values is not None}
        self._groups = [[contract.input_names.index(name) for name in group] for group in contract.one_hot]

    def read_row(self, row: Mapping[str, Any]) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """One row by column name -> ([1, inputs] matrix, names that were moved into the box).

        Raises:
            InputError: naming column, rule and value.
        """
        values, outside = self._row(row, 0)
        if self._values or self._groups:
            self._require_finite(np.array([[float(row[name]) for name in self._names]]))
        return np.array([values], dtype=np.float32), tuple(outside)

    def read_rows(self, rows: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Rows by column name -> ([rows, inputs] matrix, mask of what was moved into the box)."""
        values = np.empty((len(rows), len(self._names)), dtype=np.float64)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InputError(f"row must map column names to values, got {row!r} (row {number})")
            self._check_columns(row, number)
            values[number] = [_number(row[name], name, number) for name in self._names]
        return self._matrix(values)

    def read_frame(self, frame: Any) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """A pandas data frame -> (matrix, mask), as `read_rows`."""
        names = [str(name) for name in frame.columns]
        if len(set(names)) != len(names):
            repeated = sorted({name for name in names if names.count(name) > 1})
            raise InputError(f"data frame: expected each column once, got {', '.join(repeated)} twice (data frame)")
        self._check_columns(names, None)
        values = np.empty((len(frame), len(names)), dtype=np.float64)
        for position, name in enumerate(self._names):
            column = frame[name]
            if column.dtype.kind not in "fiu":
                raise InputError(
                    f"{name} must be a number in every row, got dtype {column.dtype} (data frame)"
                )
            values[:, position] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return self._matrix(values)

    def read_array(self, array: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """[inputs] or [rows, inputs], columns in the contract's order -> (matrix, mask)."""
        columns = len(self._names)
        _require_unmasked(array, "array")
        if array.dtype.kind not in "fiu":
            raise InputError(f"array must hold numbers, got dtype {array.dtype}")
        if array.ndim not in (1, 2) or array.shape[-1] != columns:
            raise InputError(
                f"array must have shape [{columns}] or [rows, {columns}], got {list(array.shape)}; "
                f"its columns are {', '.join(self._names)}"
            )
        return self._matrix(array.astype(np.float64).reshape(-1, columns))

    def _row(self, row: Mapping[str, Any], number: int) -> tuple[list[float], list[str]]:
        # The path of one decision: plain Python floats, no numpy until the matrix is built.
        if row.keys() != self._known:
            self._check_columns(row, number)
        values: list[float] = []
        outside: list[str] = []
        for limit in self._limits:
            value = row[limit.name]
            if type(value) is not float:
                value = _number(value, limit.name, number)
            # NaN fails every comparison, so it ends up here too.
            if not limit.physical_low <= value <= limit.physical_high:
                self._refuse(limit.name, value, number)
            if not limit.low <= value <= limit.high:
                outside.append(limit.name)
            values.append(min(max(value, limit.low32), limit.high32))
        return values, outside

    def _matrix(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        if not len(values):
            raise InputError("rows: expected at least one, got none")
        limits = self._limits
        physical = [[item.physical_low, item.physical_high] for item in limits]
        impossible = ~((values >= np.array(physical)[:, 0]) & (values <= np.array(physical)[:, 1]))
        if impossible.any():
            number, position = (int(place) for place in np.argwhere(impossible)[0])
            self._refuse(self._names[position], float(values[number, position]), number)
        self._require_finite(values)
        box = np.array([[item.low, item.high] for item in limits])
        inner = np.array([[item.low32, item.high32] for item in limits])
        outside = (values < box[:, 0]) | (values > box[:, 1])
        return np.clip(values, inner[:, 0], inner[:, 1]).astype(np.float32), outside

    def _require_finite(self, values: NDArray[np.float64]) -> None:
        """Values [rows, inputs] of inputs that take finitely many, which the proof is about alone."""
        for position, known in self._values.items():
            column = values[:, position].astype(np.float32)
            wrong = ~np.isin(column, np.array(known, dtype=np.float32))
            if wrong.any():
                number = int(np.argmax(wrong))
                listed = ", ".join(f"{value:g}" for value in known)
                raise InputError(f"{self._names[position]} must be one of {listed}, got "
                                 f"{values[number, position].item()!r} (row {number})")
        for group in self._groups:
            part = values[:, group]
            wrong = ~(np.isin(part, (0.0, 1.0)).all(axis=1) & (part.sum(axis=1) == 1))
            if wrong.any():
                number = int(np.argmax(wrong))
                names = ", ".join(self._names[position] for position in group)
                raise InputError(f"exactly one of {names} must be 1 and the others 0, got {part[number].tolist()} "
                                 f"(row {number})")

    def _check_columns(self, columns: Iterable[Any], number: int | None) -> None:
        where = "data frame" if number is None else f"row {number}"
        names = [str(name) for name in columns]
        unknown = [name for name in names if name not in self._known]
        missing = [name for name in self._names if name not in names]
        if missing:
            hints = [f"; for {name!r}: {nearest(name, missing)}" for name in unknown]
            raise InputError(
                f"columns must include {', '.join(missing)}, got {', '.join(names) or 'none'} ({where})"
                f"{''.join(hints[:_HINTS])}"
            )
        if unknown:
            raise InputError(
                f"column must be one of the contract's, got {unknown[0]!r} ({where}); "
                f"{nearest(unknown[0], self._names)} Leave out what the model does not use"
            )

    def _refuse(self, name: str, value: float, number: int) -> NoReturn:
        if not -_LARGEST <= value <= _LARGEST:
            raise InputError(f"{name} must be a finite number, got {value!r} (row {number})")
        spec = self._specs[name]
        low = "-infinity" if spec.physical_minimum is None else f"{spec.physical_minimum:g}"
        high = "infinity" if spec.physical_maximum is None else f"{spec.physical_maximum:g}"
        hint = ""
        if spec.physical_maximum == 1.0 and 1.0 < value <= _PERCENT:
            hint = "; is it in percent? Divide it by 100"
        rule = f"{name} must lie in its physical range {low}..{high} {spec.unit}"
        raise InputError(f"{rule}, got {value!r} (row {number}){hint}")


def _require_unmasked(array: Any, what: str) -> None:
    """What lies under a mask is a number like any other to numpy, and was declared to be none by its owner."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"{what} must hold plain numbers, got a masked array with {np.ma.count_masked(array)} masked; "
                         "fill it, or leave those rows out")


def _number(value: Any, name: str, number: int) -> float:
    _require_unmasked(value, name)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number, got {value!r} (row {number})")
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _limit(spec: InputSpec) -> _Limit:
    low32, high32 = np.float32(spec.minimum), np.float32(spec.maximum)
    # The nearest float32 of a bound may lie outside the box that was proved: take the next one inside.
    if float(low32) < spec.minimum:
        low32 = np.nextafter(low32, np.float32(np.inf))
    if float(high32) > spec.maximum:
        high32 = np.nextafter(high32, np.float32(-np.inf))
    if low32 > high32:
        # A box without any float32 in it (a constant such as 0.1): its nearest one stands for it.
        low32 = high32 = np.float32(spec.minimum)
    return _Limit(
        name=spec.name,
        low=float(spec.minimum),
        high=float(spec.maximum),
        physical_low=-_LARGEST if spec.physical_minimum is None else float(spec.physical_minimum),
        physical_high=_LARGEST if spec.physical_maximum is None else float(spec.physical_maximum),
        low32=float(low32),
        high32=float(high32),
    )
