"""Makes a property of one entry under `properties`, {kind: fields}, for a model with names of inputs and outputs.

The form of the entry has been checked (specification_file.py); what is left is whether its names are the model's.
Errors are `FieldError`s with the path from the entry on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from feature_store.errors import InputError, nearest
from feature_store.written.field_errors import FieldError
from models.verification.language.properties import (
    Condition,
    Conditions,
    InputValue,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Property,
    Robustness,
    Share,
    Side,
)

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class PropertyReader:
    """Reads properties of a model with these inputs and outputs."""

    features: tuple[str, ...]
    outputs: tuple[str, ...]

    def read(self, entry: Mapping[str, Fields]) -> Property:
        """The property of an entry with one kind.

        Raises:
            FieldError: a name is none of the model's (with the nearest known one), or values contradict each other.
        """
        ((kind, body),) = entry.items()
        readers: dict[str, Callable[[Fields], Property]] = {
            "monotone": self._monotone, "range": self._range, "order": self._order, "robust": self._robust,
            "share": self._share}
        with at(kind):
            return readers[kind](body)

    def _monotone(self, body: Fields) -> Property:
        indices = set()
        for number, name in enumerate(body["features"]):
            with at("features", number):
                indices.add(index_of(name, self.features))
        return Monotonicity(tuple(sorted(indices)), body["direction"], self._output(body), self._when(body))

    def _range(self, body: Fields) -> Property:
        minus = self._side(body, "minus") if "minus" in body else None
        minimum, maximum = (float(body[side]) if side in body else None for side in ("minimum", "maximum"))
        return OutputRange(self._output(body), minimum, maximum, minus, self._when(body))

    def _order(self, body: Fields) -> Property:
        upper, lower = (self._side(body, key) for key in ("upper", "lower"))
        compared = []
        for more, less in body.get("at_least", {}).items():
            with at("at_least", more):
                compared.append((index_of(more, self.features), index_of(less, self.features)))
        return OutputOrder(upper, lower, float(body["margin"]), self._when(body), float(body["factor"]),
                           tuple(sorted(compared)))

    def _robust(self, body: Fields) -> Property:
        rows = np.empty((len(body["points"]), len(self.features)))
        for number, point in enumerate(body["points"]):
            with at("points", number):
                rows[number] = self._point(point)
        given = body["radius"]
        sides = np.full(len(self.features), 0.0 if isinstance(given, Mapping) else given)
        for name, side in given.items() if isinstance(given, Mapping) else ():
            with at("radius", name):
                sides[index_of(name, self.features)] = side
        return Robustness(rows, sides, float(body["change"]), self._output(body), self._when(body))

    def _point(self, point: Mapping[str, float] | Sequence[float]) -> Sequence[float]:
        if isinstance(point, Mapping):
            for name in point:
                with at(name):
                    index_of(name, self.features)
            if missing := [name for name in self.features if name not in point]:
                raise FieldError([], f"expected a value of every input, got none of {', '.join(missing)}")
            point = [point[name] for name in self.features]
        if len(point) != len(self.features):
            raise FieldError([], f"expected {len(self.features)} numbers, got {len(point)}")
        return point

    def _share(self, body: Fields) -> Property:
        with at("of"):
            of = self.read(body["of"])
        assert isinstance(of, Monotonicity | OutputRange | OutputOrder)  # the kinds of CountedFields
        return Share(of, float(body["at_least"]), float(body["confidence"]), int(body["samples"]), self._when(body))

    def _when(self, body: Fields) -> Conditions:
        """Conditions in the order of the inputs."""
        conditions = {}
        for name, (low, high) in body.get("when", {}).items():
            with at("when", name):
                feature = index_of(name, self.features)
                conditions[feature] = Condition(feature, float(low), float(high))
        return tuple(conditions[feature] for feature in sorted(conditions))

    def _side(self, body: Fields, key: str) -> Side:
        """An output or an input by its name."""
        name = body[key]
        if name in self.outputs and name in self.features:
            raise FieldError([key], f"expected the name of an output or of an input, got {name!r}, which is both: call "
                                    "them differently")
        if name in self.features:
            return InputValue(self.features.index(name))
        if name not in self.outputs:
            raise FieldError([key], f"expected an output or an input of the model, got {name!r}; "
                             + nearest(name, (*self.outputs, *self.features)))
        return self.outputs.index(name)

    def _output(self, body: Fields) -> int:
        name = body.get("output")
        if name is None and len(self.outputs) == 1:
            return 0
        if name is None:
            raise FieldError([], f"the field 'output' is missing; known: {', '.join(self.outputs)}")
        if name not in self.outputs:
            hint = nearest(name, self.outputs)
            raise FieldError(["output"], f"expected an output of the model, got {name!r}; {hint}")
        return self.outputs.index(name)


def index_of(name: str, names: tuple[str, ...]) -> int:
    """The number of the feature of this name. Raises FieldError."""
    if name not in names:
        raise FieldError([], f"expected an input of the model, got {name!r}; {nearest(name, names)}")
    return names.index(name)


@contextmanager
def at(*path: str | int) -> Iterator[None]:
    """Errors raised inside are about what stands at the path, or below it."""
    try:
        yield
    except FieldError as error:
        raise FieldError([*path, *error.path], str(error)) from error
    except InputError as error:
        raise FieldError(path, str(error)) from error
