"""What a kind of task makes of a trained learner, to be proved and shipped: one frozen value.

Flow: a kind of task builds a `Product` in the verify step; bundle.py writes its files into a folder, decides its
specification on the very file that ships (models/verification/decide.py) and keeps proof or counterexample; the export
step adds the evidence. A kind may prove any property of the specification language, of any number of outputs.

All values are in raw units, as the model takes and gives them. Symbols: n inputs, o outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
        specification: content of specification.yaml as plain values, with nothing left to defaults: `features`,
            `outputs`, `units`, `box`, `properties`, and `tolerance` and `rounding` where they matter
            (models/verification/language/specification_writing.py makes it of a Specification).
        inputs: n columns, in the order of the specification's `features`.
        outputs: o columns, in the order of the specification's `outputs`.
        versions: of what it was made.
        files: content of further files of the bundle by name, for example encoder.onnx of a few-shot model.
        embedding: of a model that takes an embedding of measured runs: what the contract says of encoder.onnx, without
            its name and digest (serving/contract.py).
    """

    task: str
    workload: str
    model: bytes
    specification: Mapping[str, Any]
    inputs: tuple[ProductInput, ...]
    outputs: tuple[ProductOutput, ...]
    versions: Versions
    files: Mapping[str, bytes] = field(default_factory=dict)
    embedding: Mapping[str, Any] | None = None
