"""What a kind of task makes of a trained learner, to be proved and shipped: one frozen value.

Flow: a kind of task builds a `Product` in the verify step; bundle.py writes its files into a folder, decides its
specification on the very file that ships (models/verification/decide.py) and keeps proof or counterexample; the export
step adds the evidence. A kind may prove any property of the specification language, of any number of outputs.

All values are in raw units, as the model takes and gives them. Symbols: n inputs, o outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from feature_store.errors import InputError
from models.verification.language.specification import FloatArray, Specification
from models.verification.language.tolerance import share_of, with_tolerance

OutputKind = Literal["prediction", "target", "change"]


@dataclass(frozen=True)
class ProductInput:
    """One column of the model's input. Its name, unit and order are the specification's `features` and `units`.

    Args:
        name: as in the specification.
        unit: as in the specification; "" where it has none.
        description: for people.
        physical_minimum, physical_maximum: what physics allows, beyond which a controller's value is a mistake; None:
            unbounded.
    """

    name: str
    unit: str
    description: str = ""
    physical_minimum: float | None = None
    physical_maximum: float | None = None


@dataclass(frozen=True)
class ProductOutput:
    """One column of the model's output. Its name, unit and order are the specification's `outputs` and `units`.

    Args:
        name: as in the specification.
        unit: as in the specification; "" where it has none.
        kind: what a controller does with it: a "prediction" of what will be measured; a "target", the value that a
            setting shall get; a "change", by how much a setting shall move.
        minimum, maximum: the range that training saw, minimum < maximum.
        physical_minimum, physical_maximum: what physics allows; None: unbounded.
    """

    name: str
    unit: str
    kind: OutputKind
    minimum: float
    maximum: float
    physical_minimum: float | None = None
    physical_maximum: float | None = None


@dataclass(frozen=True)
class Versions:
    """Of what a product was made: digests of code and data, and the seed."""

    code_version: str
    data_version: str
    seed: int


@dataclass(frozen=True)
class Product:
    """What is proved and shipped.

    Args:
        task, workload: whose it is.
        model: content of model.onnx: one input float32 [batch, n], one output float32 [batch, o], both in raw units.
        specification: what must hold of it, its box in raw units; specification.yaml is this, written out. `promised`
            makes one of a task's, whose tolerance is a share.
        inputs: n columns, in the order of the specification's `features`.
        outputs: o columns, in the order of the specification's `outputs`.
        versions: of what it was made.
        files: content of further files of the bundle by name, for example encoder.onnx of a few-shot model.
        embedding: of a model that takes an embedding of measured runs: what the contract says of encoder.onnx, without
            its name and digest (serving/contract.py).
        fallback: of a controller: the rule that acts where it may not, and the safe ranges (serving/fallback_spec.py).
        driving: of a controller: how it is driven (serving/driving_spec.py).
        seconds: limit of its proof, > 0.
        points: (m, n) inputs in raw units at which counterexamples are sought first, for example training rows; None:
            none.
    """

    task: str
    workload: str
    model: bytes
    specification: Specification
    inputs: tuple[ProductInput, ...]
    outputs: tuple[ProductOutput, ...]
    versions: Versions
    files: Mapping[str, bytes] = field(default_factory=dict)
    embedding: Mapping[str, Any] | None = None
    fallback: Mapping[str, Any] | None = None
    driving: Mapping[str, Any] | None = None
    seconds: float = 60.0
    points: FloatArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        units = self.specification.units
        for what, names, columns in (("inputs", self.specification.feature_names, self.inputs),
                                     ("outputs", self.specification.output_names, self.outputs)):
            known = [(name, units.get(name, "")) for name in names]
            given = [(column.name, column.unit) for column in columns]
            if known != given:
                raise InputError(f"{what} of a product must be the specification's, with their units, {known}, got "
                                 f"{given} ({self.task}, {self.workload})")
        if (self.embedding is None) != ("encoder.onnx" not in self.files):
            raise InputError("encoder.onnx must come with what the contract says of the embedding, got one of the two "
                             f"({self.task}, {self.workload})")


# Largest share of an output's range that execution may add to a violation (docs/decisions/0010).
MOST_ROUNDING = 1e-5


def promised(specification: Specification, spans: Sequence[float], units: Mapping[str, str]) -> Specification:
    """A specification in raw units, with what a task says in shares of the outputs' ranges as amounts.

    Args:
        specification: its box and limits in raw units, its `tolerance` a share of an output's range.
        spans: (o,) those ranges, the largest minus the smallest value that training saw, > 0.
        units: of inputs and outputs, by name; empty ones are left out.
    """
    amounts = [share_of(span, specification.tolerance) for span in spans]
    limits = {output: share_of(span, MOST_ROUNDING) for output, span in enumerate(spans)}
    named = {name: unit for name, unit in units.items() if unit}
    return with_tolerance(replace(specification, units=named, rounding=limits), amounts)
