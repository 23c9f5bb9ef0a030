"""ONNX operators that move values about: MOVES takes the places of a tensor's values to those of the result's.

An index is an array of places in C order, in the tensor's shape; what stands in the result is its own index. Operands
after the tensor are constant integers, attributes in old opsets.
"""

from collections.abc import Callable, Mapping

import numpy as np

from feature_store.errors import InputError
from models.verification.network.affine_expression import Array, Attributes, Index


def _given(attributes: Attributes, name: str, operand: Array | None) -> list[int] | None:
    """Integers of an attribute in old opsets and of an operand in new ones."""
    if operand is None:
        return attributes.get(name)
    if operand.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers, got {operand.dtype}")
    return [int(value) for value in operand.ravel()]


def _reshape(index: Index, attributes: Attributes, shape: Array) -> Index:
    sizes = _given(attributes, "shape", shape) or []
    kept = [index.shape[k] if size == 0 and not attributes.get("allowzero") else size for k, size in enumerate(sizes)]
    return index.reshape(kept)


def _flatten(index: Index, attributes: Attributes) -> Index:
    axis = attributes.get("axis", 1)
    if not -index.ndim <= axis <= index.ndim:
        raise InputError(f"axis must be in [-{index.ndim}, {index.ndim}], got {axis}")
    return index.reshape(int(np.prod(index.shape[:axis])), -1)


def _squeeze(index: Index, attributes: Attributes, axes: Array | None = None) -> Index:
    given = _given(attributes, "axes", axes)
    return np.squeeze(index, None if given is None else tuple(given))


def _unsqueeze(index: Index, attributes: Attributes, axes: Array | None = None) -> Index:
    return np.expand_dims(index, tuple(_given(attributes, "axes", axes) or ()))


def _slice(index: Index, attributes: Attributes, *operands: Array | None) -> Index:
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (_given(attributes, name, operand) for name, operand in
                                 zip(names, (*operands, *[None] * (4 - len(operands))), strict=True))
    cut = [slice(None)] * index.ndim
    axes = list(range(len(starts or ()))) if axes is None else [axis % index.ndim for axis in axes]
    if len(set(axes)) < len(axes):
        raise InputError(f"axes must be distinct, got {axes}")
    for axis, start, end, step in zip(axes, starts or (), ends or (), steps or [1] * len(axes), strict=True):
        cut[axis] = slice(start, end, step)
    return index[tuple(cut)]


def split(index: Index, attributes: Attributes, count: int, sizes: Array | None = None) -> list[Index]:
    """The indices of Split's `count` results. Raises InputError where the sizes do not fit."""
    axis = attributes.get("axis", 0)
    size, parts = index.shape[axis], _given(attributes, "split", sizes)
    if parts is None:
        each = -(-size // count)
        parts = [each] * (count - 1) + [size - each * (count - 1)]
        if "num_outputs" not in attributes and size % count:
            parts = []
    if len(parts) != count or sum(parts) != size or min(parts) < 1:
        raise InputError(f"sizes must be {count} and add up to {size}, got {parts}")
    return np.split(index, np.cumsum(parts)[:-1], axis)


MOVES: Mapping[str, Callable[..., Index]] = {
    "Dropout": lambda index, *_: index,
    "Flatten": _flatten,
    "Gather": lambda index, attributes, places: np.take(index, places, axis=attributes.get("axis", 0)),
    "Identity": lambda index, _: index,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": lambda index, attributes: np.transpose(index, attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
}
