"""What a property file claims of a network, part by part: SPEC.yaml or VNN-LIB -> `Claim`.

Symbols: n inputs, R boxes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from feature_store.whole_files import require_file
from models.verification.language.properties import Robustness, Share, where
from models.verification.language.specification import Specification
from models.verification.language.specification_language import read_specification
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.language.vnnlib import read_vnnlib
from models.verification.network.fed_numbers import FLOAT64, Number, as_fed, hull
from models.verification.network.graph import FloatArray, Function, Graph
from models.verification.network.onnx_reader import MOST_MODEL
from models.verification.obligations.compile import PairObligation, RelationObligation, Step, obligations
from models.verification.obligations.slopes import Slopes
from models.verification.trees.forest_order import ForestOrder

MOST_PROPERTY = 100_000_000  # bytes: a packed property need not have more
REAL = "It is proved for the network in real arithmetic, with the weights stored in the file."
VNNLIB = (".vnnlib", ".vnnlib.gz")


@dataclass(frozen=True)
class Part:
    """One thing to prove over boxes with walls lower, upper (R, n); a share is counted instead.

    number: the type that the network takes its inputs in.
    """

    name: str
    lower: FloatArray
    upper: FloatArray
    obligation: Slopes | UnsafeSet | RelationObligation | PairObligation | Share | ForestOrder
    number: Number = FLOAT64

    @property
    def proved(self) -> tuple[FloatArray, FloatArray]:
        """The walls (R, n) of the boxes that are proved: with all that is fed for inputs of the part's own boxes."""
        return hull(self.lower, self.upper, self.number)


@dataclass(frozen=True)
class Fed:
    """Boxes with walls lower, upper (R, n) of inputs that are fed."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class Claim:
    """All parts, what they say together, how inputs and outputs are called, and the units of those that have one."""

    parts: tuple[Part, ...]
    statement: str
    feature_names: tuple[str, ...]
    output_names: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    specification: Specification | None = None

    @property
    def given(self) -> Specification:
        """The specification; a VNN-LIB property has none, and no part that asks for it."""
        assert self.specification is not None
        return self.specification

    @property
    def fed(self) -> tuple[Fed, ...]:
        """All inputs that the claim speaks of: those of its parts' boxes, also with the other value of a pair, and the
        points that a change is measured from, which may lie anywhere."""
        found = []
        for part in self.parts:
            found.append(Fed(part.lower, part.upper))
            if isinstance(part.obligation, Step):
                walls = np.array([part.lower, part.upper])
                walls[..., part.obligation.feature] = part.obligation.high
                found.append(Fed(*walls))
        for rule in () if self.specification is None else self.specification.properties:
            if isinstance(measured := rule.of if isinstance(rule, Share) else rule, Robustness):
                number = self.parts[0].number if self.parts else FLOAT64
                found.append(Fed(*hull(measured.points, measured.points, number)))
        return tuple(found)


def read_claim(path: Path, graph: Graph, number: Number = FLOAT64, seconds: float = math.inf) -> Claim:
    """Reads SPEC.yaml, or a VNN-LIB property by its ending.

    number: the type that the network takes its inputs in.

    Raises InputError where it does not fit the network, or reading takes longer than `seconds`.
    """
    if path.name.endswith(VNNLIB):
        return read_outputs_claim(path, graph, number, seconds, REAL)
    specification = as_fed(read_specification(path, graph, seconds), number)
    parts = tuple(replace(part, number=number) for part in _parts(graph, specification))
    return Claim(parts, specification.statement, specification.feature_names, specification.output_names,
                 specification.units, specification)


def read_outputs_claim(path: Path, function: Function, number: Number, seconds: float, proved: str) -> Claim:
    """Reads a VNN-LIB property. proved: what a proof is about, as a sentence."""
    unsafe = read_vnnlib(path, function.inputs, function.outputs, seconds)
    return Claim((Part("outputs", unsafe.lower, unsafe.upper, unsafe, number),),
                 f"No input in the boxes of {path.name} reaches its unsafe outputs. {proved}",
                 tuple(f"X_{i}" for i in range(function.inputs)), tuple(f"Y_{i}" for i in range(function.outputs)))


def require_readable(model: Path, specification: Path) -> None:
    """Raises InputError for files that cannot be read whole: pipes, devices, and more than is ever of use."""
    require_file(model, "model", MOST_MODEL)
    require_file(specification, "specification", MOST_PROPERTY)


def exact(value: float) -> str:
    """The number, with all the digits that it needs and no more."""
    return repr(float(value)).removesuffix(".0")


def _parts(graph: Graph, specification: Specification) -> Iterator[Part]:
    names, due = specification.feature_names, obligations(graph, specification)
    for slopes in due.slopes:
        yield Part(f"monotone{where(slopes.when, names)}", slopes.lower, slopes.upper, slopes.slopes)
    if due.unsafe is not None:
        yield Part("outputs", due.unsafe.lower, due.unsafe.upper, due.unsafe)
    if due.relation is not None:
        yield Part("outputs and inputs", due.relation.unsafe.lower, due.relation.unsafe.upper, due.relation)
    for pair in due.differences:
        name = f"{names[pair.feature]} from {exact(pair.low)} to {exact(pair.high)}"
        if graph.outputs > 1:
            name += f", {specification.output_names[pair.output]}"
        yield Part(name + where(pair.when, names), pair.unsafe.lower, pair.unsafe.upper, pair)
    for share in due.shares:
        yield Part("share", share.lower, share.upper, share.share)
