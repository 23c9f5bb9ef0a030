"""Reads one property: the entries under `properties` of the specification language, {kind: fields}.

specification_language.py shows every kind and reads what stands around them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from feature_store.errors import InputError, nearest
from models.verification.language.properties import (
    DEFAULT_CONFIDENCE,
    DEFAULT_SAMPLES,
    Condition,
    Conditions,
    FloatArray,
    InputValue,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Property,
    Robustness,
    Share,
    Side,
)

KINDS = {  # what each must have, in words, and its fields
    "monotone": ("features and a direction", ("features", "direction", "output", "when")),
    "range": ("an output and a minimum or a maximum", ("output", "minimum", "maximum", "minus", "when")),
    "order": ("an upper and a lower output", ("upper", "lower", "margin", "when")),
    "robust": ("points, a radius and a change", ("points", "radius", "change", "output", "when")),
    "share": ("a property `of` and `at_least`", ("of", "at_least", "confidence", "samples", "when")),
}
SHARED = ("monotone", "range", "order")  # the kinds of which a share can be counted

T = TypeVar("T")


@dataclass(frozen=True)
class PropertyReader:
    """Reads properties of a model with these inputs and outputs. `where` goes into error messages."""

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    where: str

    def read(self, entry: Any, kinds: Sequence[str] = tuple(KINDS), what: str = "property") -> Property:
        """One entry {kind: fields}.

        Raises InputError: unknown kind, field, feature or output (with the nearest known name), or an unusable value.
        """
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise InputError(f"{what} must be a mapping with one kind, got {entry!r} ({self.where})")
        ((kind, body),) = entry.items()
        if kind not in kinds:
            raise InputError(f"{what} must be of a known kind, got {kind!r} ({self.where}); "
                             + nearest(str(kind), kinds))
        place = f"{self.where}: {kind}"
        needed, fields = KINDS[kind]
        if not isinstance(body, Mapping):
            raise InputError(f"property must have {needed}, got {body!r} ({place})")
        require_known(body, fields, place)
        readers: dict[str, Callable[[Mapping[str, Any], str], Property]] = {
            "monotone": self._monotone, "range": self._range, "order": self._order, "robust": self._robust,
            "share": self._share}
        return readers[kind](body, place)

    def _monotone(self, body: Mapping[str, Any], place: str) -> Property:
        direction = body.get("direction", "increasing")
        if direction not in ("increasing", "decreasing"):
            raise InputError(f"direction must be increasing or decreasing, got {direction!r} ({place})")
        features = body.get("features")
        if not is_list(features) or not features:
            raise InputError(f"features must be a list of at least one name, got {features!r} ({place})")
        indices = tuple(sorted({index_of(f, self.features, self.where) for f in features}))
        return Monotonicity(indices, direction, self._output(body, place), self._when(body, place))

    def _range(self, body: Mapping[str, Any], place: str) -> Property:
        output = self._output(body, place)
        minimum, maximum = (None if body.get(side) is None else read_number(body[side], side, place)
                            for side in ("minimum", "maximum"))
        minus = None if body.get("minus") is None else self._side(body, place, "minus")
        when = self._when(body, place)
        return located(lambda: OutputRange(output, minimum, maximum, minus, when), place)

    def _order(self, body: Mapping[str, Any], place: str) -> Property:
        upper, lower = (self._side(body, place, side) for side in ("upper", "lower"))
        margin, when = read_number(body.get("margin", 0), "margin", place), self._when(body, place)
        return located(lambda: OutputOrder(upper, lower, margin, when), place)

    def _robust(self, body: Mapping[str, Any], place: str) -> Property:
        points, radius = body.get("points"), body.get("radius")
        if not is_list(points) or not points:
            raise InputError(f"points must be a list of at least one, got {points!r} ({place})")
        rows = np.array([self._point(point, f"{place}: point {k}") for k, point in enumerate(points)])
        if isinstance(radius, Mapping):
            sides = np.zeros(len(self.features))
            for name, side in radius.items():
                sides[index_of(name, self.features, place)] = read_number(side, "radius", f"{place}: feature {name!r}")
        else:
            sides = np.full(len(self.features), read_number(radius, "radius", place))
        change, output = read_number(body.get("change"), "change", place), self._output(body, place)
        when = self._when(body, place)
        return located(lambda: Robustness(rows, sides, change, output, when), place)

    def _point(self, point: Any, place: str) -> FloatArray:
        if isinstance(point, Mapping):
            for name in point:
                index_of(name, self.features, place)
            if missing := [name for name in self.features if name not in point]:
                raise InputError(f"point must give every feature, got none for {', '.join(missing)} ({place})")
            point = [point[name] for name in self.features]
        if not is_list(point) or len(point) != len(self.features):
            raise InputError(f"point must be a list of {len(self.features)} numbers or a mapping of feature to number, "
                             f"got {point!r} ({place})")
        return np.array([read_number(value, "value of a point", place) for value in point])

    def _share(self, body: Mapping[str, Any], place: str) -> Property:
        of = PropertyReader(self.features, self.outputs, place).read(body.get("of"), SHARED, "of")
        assert isinstance(of, Monotonicity | OutputRange | OutputOrder)  # the kinds in SHARED
        if of.when:
            raise InputError(f"when must stand beside `of`, got it inside of it ({place})")
        when = self._when(body, place)
        at_least = read_number(body.get("at_least"), "at_least", place)
        confidence = read_number(body.get("confidence", DEFAULT_CONFIDENCE), "confidence", place)
        samples = read_number(body.get("samples", DEFAULT_SAMPLES), "samples", place)
        if not samples.is_integer():
            raise InputError(f"samples must be a whole number, got {samples!r} ({place})")
        return located(lambda: Share(of, at_least, confidence, int(samples), when), place)

    def _when(self, body: Mapping[str, Any], place: str) -> Conditions:
        """Conditions in the order of the inputs."""
        given = body.get("when")
        if given is None:
            return ()
        place = f"{place}: when"
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"when must be a mapping of feature to [lower, upper], got {given!r} ({place})")
        conditions = {}
        for name, wall in given.items():
            feature = index_of(name, self.features, place)
            if not is_list(wall) or len(wall) != 2:
                raise InputError(f"when must give [lower, upper], got {wall!r} ({place}: feature {name!r})")
            low, high = (read_number(side, "wall of a condition", f"{place}: feature {name!r}") for side in wall)
            conditions[feature] = located(partial(Condition, feature, low, high), f"{place}: feature {name!r}")
        return tuple(conditions[feature] for feature in sorted(conditions))

    def _side(self, body: Mapping[str, Any], place: str, key: str) -> Side:
        """An output or an input by its name."""
        name = body.get(key)
        if name in self.outputs and name in self.features:
            raise InputError(f"{key} must say which one it means, got the name of an output and of an input, {name!r}: "
                             f"call them differently ({place})")
        if name in self.features:
            return InputValue(self.features.index(name))
        if name not in self.outputs:
            raise InputError(f"{key} must be an output or an input of the model, got {name!r} ({place}); "
                             + nearest(str(name), (*self.outputs, *self.features)))
        return self.outputs.index(name)

    def _output(self, body: Mapping[str, Any], place: str, key: str = "output") -> int:
        name = body.get(key)
        if name is None and key == "output" and len(self.outputs) == 1:
            return 0
        if name not in self.outputs:
            raise InputError(f"{key} must be an output of the model, got {name!r} ({place}); "
                             + nearest(str(name), self.outputs))
        return self.outputs.index(name)


def require_known(given: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    """Refuses a field that the language does not have, naming the nearest that it has."""
    for key in given:
        if key not in known:
            raise InputError(f"field must be known, got {key!r} ({where}); {nearest(str(key), known)}")


def index_of(name: Any, names: tuple[str, ...], where: str) -> int:
    """The number of the feature of this name."""
    if name not in names:
        raise InputError(f"feature must be an input of the model, got {name!r} ({where}); {nearest(str(name), names)}")
    return names.index(name)


def is_list(value: Any) -> bool:
    """Whether YAML gave a list."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def read_number(value: Any, what: str, where: str) -> float:
    """A number, also one that YAML reads as text (1e-4 has no dot)."""
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{what} must be a number, got {value!r} ({where})")


def located(make: Callable[[], T], where: str) -> T:
    """What `make` returns; its errors say where."""
    try:
        return make()
    except InputError as error:
        raise InputError(f"{error} ({where})") from error
