"""What must hold for every input of a box: the specification language of task files and SPEC.yaml.

    tolerance: 1.0e-4            # slack, see below; default 1e-4
    box: {psi_cpu_some: [0, 1]}  # raw units; a feature not named takes the range of the training data
    properties:
      - monotone: {features: [psi_cpu_some, psi_io_full], direction: increasing}

Monotonicity is equation 1 of vPALs: for all x0, x1 in the box with x0[i] >= x1[i] for the chosen
features i and equal elsewhere, f(x0) >= f(x1). For a piecewise linear f it is the sign of every
partial derivative in every activation region. `tolerance` is a slope: a pair may violate the order
by at most tolerance times its distance (1-norm), in scaled units (share of the target's range per
range of a feature), so that a region in which f is constant is not lost to rounding.

Symbols: n inputs; lower, upper (n,) the box in the network's own (scaled) coordinates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest

FloatArray = NDArray[np.float64]
Direction = Literal["increasing", "decreasing"]

DEFAULT_TOLERANCE = 1e-4
FIELDS = ("tolerance", "box", "properties")


@dataclass(frozen=True)
class Monotonicity:
    """The output never falls (increasing) or never rises (decreasing) in each of `features` (column indices)."""

    features: tuple[int, ...]
    direction: Direction

    @property
    def sign(self) -> int:
        """+1 for increasing, -1 for decreasing."""
        return 1 if self.direction == "increasing" else -1


@dataclass(frozen=True)
class Specification:
    """Properties over a box. `lower` and `upper`: (n,), float64, in the network's coordinates."""

    feature_names: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray
    properties: tuple[Monotonicity, ...]
    tolerance: float = DEFAULT_TOLERANCE

    def __post_init__(self) -> None:
        n = len(self.feature_names)
        if self.lower.shape != (n,) or self.upper.shape != (n,):
            raise InputError(f"box must have {n} lower and upper bounds, got shapes {self.lower.shape} and "
                             f"{self.upper.shape}")
        if not (np.isfinite(self.lower).all() and np.isfinite(self.upper).all()):
            raise InputError("box must be bounded, got an infinite or NaN wall")
        for name, low, high in zip(self.feature_names, self.lower, self.upper, strict=True):
            if low > high:
                raise InputError(f"box must have lower <= upper, got [{low:g}, {high:g}] (feature {name!r})")
        if not self.properties:
            raise InputError("specification must have at least one property, got none")
        if not (np.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InputError(f"tolerance must be a number >= 0, got {self.tolerance!r}")
        directions: dict[int, Direction] = {}
        for rule in self.properties:
            for feature in rule.features:
                if not 0 <= feature < n:
                    raise InputError(f"feature index must be in 0..{n - 1}, got {feature}")
                if directions.setdefault(feature, rule.direction) != rule.direction:
                    raise InputError(f"directions must not contradict, got increasing and decreasing "
                                     f"(feature {self.feature_names[feature]!r})")

    @property
    def queries(self) -> tuple[tuple[int, int], ...]:
        """Distinct (feature index, sign) pairs that must be proved, in ascending order."""
        return tuple(sorted({(f, rule.sign) for rule in self.properties for f in rule.features}))

    @property
    def statement(self) -> str:
        """What a proof of this specification says, as a sentence for reports and certificates."""
        rules = "; ".join(f"{rule.direction} in {', '.join(self.feature_names[f] for f in rule.features)}"
                          for rule in self.properties)
        return (f"The output is {rules}, for every input in the box, with the other inputs equal: a pair may "
                f"violate the order by at most {self.tolerance:g} of the output range per range of a feature. "
                "It is proved for the network in real arithmetic with the weights stored in the model file; "
                "float32 execution adds rounding of the order of 1e-6 of the output range.")


def parse_specification(
    data: Mapping[str, Any], feature_names: Sequence[str], box: Mapping[str, tuple[float, float]], where: str,
) -> Specification:
    """Builds a specification from parsed YAML.

    Args:
        data: the mapping described in the module docstring.
        feature_names: the n inputs of the model, in order.
        box: default (minimum, maximum) of each feature, in the same units as data["box"].
        where: goes into error messages.

    Raises:
        InputError: unknown field, property or feature (with the nearest known name), a value of the wrong
            kind, lower > upper, contradicting directions, no property.
    """
    names = tuple(feature_names)
    if not isinstance(data, Mapping):
        raise InputError(f"specification must be a mapping of {', '.join(FIELDS)}, got {data!r} ({where})")
    for key in data:
        if key not in FIELDS:
            raise InputError(f"field must be known, got {key!r} ({where}); {nearest(str(key), FIELDS)}")
    walls = {name: box[name] for name in names}
    given = data.get("box") or {}
    if not isinstance(given, Mapping):
        raise InputError(f"box must be a mapping of feature to [lower, upper], got {given!r} ({where})")
    for name, wall in given.items():
        _index(name, names, where)
        if not (isinstance(wall, Sequence) and not isinstance(wall, str) and len(wall) == 2):
            raise InputError(f"box must give [lower, upper], got {wall!r} ({where}: feature {name!r})")
        low, high = (_number(side, "wall of the box", f"{where}: feature {name!r}") for side in wall)
        walls[name] = (low, high)
    entries = data.get("properties") or []
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise InputError(f"properties must be a list, got {entries!r} ({where})")
    properties = tuple(_parse_property(entry, names, where) for entry in entries)
    tolerance = _number(data.get("tolerance", DEFAULT_TOLERANCE), "tolerance", where)
    lower, upper = np.array([walls[name] for name in names], dtype=np.float64).reshape(-1, 2).T
    try:
        return Specification(names, lower, upper, properties, tolerance)
    except InputError as error:
        raise InputError(f"{error} ({where})") from error


def _number(value: Any, what: str, where: str) -> float:
    """A number, also one that YAML reads as text (1e-4 has no dot)."""
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise InputError(f"{what} must be a number, got {value!r} ({where})")


def _parse_property(entry: Any, names: tuple[str, ...], where: str) -> Monotonicity:
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise InputError(f"property must be a mapping with one kind, got {entry!r} ({where})")
    ((kind, body),) = entry.items()
    if kind != "monotone":
        raise InputError(f"property must be of a known kind, got {kind!r} ({where}); "
                         + nearest(str(kind), ["monotone"]))
    if not isinstance(body, Mapping):
        raise InputError(f"property must have features and a direction, got {body!r} ({where}: monotone)")
    for key in body:
        if key not in ("features", "direction"):
            raise InputError(f"field must be known, got {key!r} ({where}: monotone); "
                             + nearest(str(key), ["features", "direction"]))
    direction = body.get("direction", "increasing")
    if direction not in ("increasing", "decreasing"):
        raise InputError(f"direction must be increasing or decreasing, got {direction!r} ({where}: monotone)")
    features = body.get("features")
    if not isinstance(features, Sequence) or isinstance(features, str) or not features:
        raise InputError(f"features must be a list of at least one name, got {features!r} ({where}: monotone)")
    return Monotonicity(tuple(sorted({_index(f, names, where) for f in features})), direction)


def _index(name: str, names: tuple[str, ...], where: str) -> int:
    if name not in names:
        raise InputError(f"feature must be an input of the model, got {name!r} ({where}); {nearest(str(name), names)}")
    return names.index(name)
