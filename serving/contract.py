"""The contract of a bundle: what a controller feeds the model, what it gets, and where stands what was proved of it.

`contract.json` is written with the model and read by everybody who holds a bundle. All values are in raw units: the
scaling is inside model.onnx.

    inputs         in the order of the model's columns; [minimum, maximum] is the verified box, [physical_minimum,
                   physical_maximum] what physics allows (None: unbounded); values: the only ones that it takes, of an
                   input that takes finitely many
    one_hot        optional: groups of inputs of which exactly one is 1 and the others are 0
    outputs        in the order of the model's columns; kind: a prediction of what will be measured, a target for a
                   setting, or a change of one; [minimum, maximum] is the range that training saw
    specification  the file that says what was proved, its SHA-256, and that in a sentence (serving/promise.py)
    model          the ONNX file, its SHA-256, opset and the names of its one input and its one output
    fallback       optional: the controller that acts where the model may not, and the safe ranges (fallback_spec.py)
    driving        optional: how a policy is driven (driving_spec.py)
    guarantee      optional: what is guaranteed of the closed loop, and the file of its proof (guarantee_spec.py)
    embedding      optional: which inputs are an embedding of measured runs, the workload's own, and the ONNX file
                   that makes one of new runs (serving/encoder.py)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from feature_store.errors import InputError, nearest
from feature_store.finite_numbers import is_finite_number
from feature_store.names import check_label, check_task_name, check_workload_name, is_sha256
from serving.driving_spec import DrivingSpec, driving_spec
from serving.fallback_spec import FallbackSpec, fallback_spec
from serving.guarantee_spec import GuaranteeSpec, guarantee_spec

FORMAT = "assay-bundle/2"
MODEL_FILE = "model.onnx"
SPECIFICATION_FILE = "specification.yaml"
ENCODER_FILE = "encoder.onnx"

_BOUNDS = ("minimum", "maximum", "physical_minimum", "physical_maximum")
_INPUT_KEYS = ("name", "unit", "description", *_BOUNDS)
_OUTPUT_KEYS = ("name", "unit", "kind", *_BOUNDS)
KINDS = ("prediction", "target", "change")
_MODEL_KEYS = ("file", "sha256", "opset", "input", "output")
_EMBEDDING_KEYS = (
    "file", "sha256", "inputs", "configuration", "target", "runs", "own", "similarity", "threshold",
)  # fmt: skip
_KEYS = (
    "format", "task", "workload", "inputs", "outputs", "specification", "model",
    "code_version", "data_version", "seed",
)  # fmt: skip
_OPTIONAL = ("embedding", "one_hot", "fallback", "driving", "guarantee")
_SPECIFICATION_KEYS = ("file", "sha256", "statement")

Item = TypeVar("Item", "InputSpec", "OutputSpec")


@dataclass(frozen=True)
class InputSpec:
    """One column of the model's input, raw units. The proof covers [minimum, maximum]."""

    name: str
    unit: str
    description: str
    minimum: float
    maximum: float
    physical_minimum: float | None
    physical_maximum: float | None
    values: tuple[float, ...] | None = None


@dataclass(frozen=True)
class OutputSpec:
    """One column of the model's output, raw units. [minimum, maximum] is what training saw; kind: see KINDS."""

    name: str
    unit: str
    kind: str
    minimum: float
    maximum: float
    physical_minimum: float | None
    physical_maximum: float | None


@dataclass(frozen=True)
class ModelSpec:
    """The ONNX file that the contract is about."""

    file: str
    sha256: str
    opset: int
    input: str
    output: str


@dataclass(frozen=True)
class SpecificationSpec:
    """The file that says what was proved, and that in a sentence."""

    file: str
    sha256: str
    statement: str


@dataclass(frozen=True)
class EmbeddingSpec:
    """Inputs that are an embedding of a workload's measured runs.

    Attributes:
        file, sha256: the encoder that makes one.
        inputs: their names, in order; own: the workload's own values when it was trained.
        configuration: inputs of a run, in the encoder's order; target: what a run measures; runs: the most it takes.
        similarity: of the own embedding to the nearest workload of the pool; below `threshold` is out of distribution.
    """

    file: str
    sha256: str
    inputs: tuple[str, ...]
    configuration: tuple[str, ...]
    target: str
    runs: int
    own: tuple[float, ...]
    similarity: float
    threshold: float

    @property
    def out_of_distribution(self) -> bool:
        """Whether the workload is less like the pool than the pool's own workloads are."""
        return self.similarity < self.threshold

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}


@dataclass(frozen=True)
class Contract:
    """The content of contract.json."""

    task: str
    workload: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    specification: SpecificationSpec
    model: ModelSpec
    code_version: str
    data_version: str
    seed: int
    embedding: EmbeddingSpec | None = None
    one_hot: tuple[tuple[str, ...], ...] = ()
    fallback: FallbackSpec | None = None
    driving: DrivingSpec | None = None
    guarantee: GuaranteeSpec | None = None

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the model's columns, in order."""
        return tuple(item.name for item in self.inputs)

    def to_json(self) -> dict[str, Any]:
        """The content of contract.json."""
        return {
            "format": FORMAT,
            "task": self.task,
            "workload": self.workload,
            "inputs": [_entry(item) for item in self.inputs],
            **({"one_hot": [list(group) for group in self.one_hot]} if self.one_hot else {}),
            "outputs": [vars(item).copy() for item in self.outputs],
            "specification": vars(self.specification).copy(),
            "model": vars(self.model).copy(),
            "code_version": self.code_version,
            "data_version": self.data_version,
            "seed": self.seed,
            **({} if self.embedding is None else {"embedding": self.embedding.to_json()}),
            **({} if self.fallback is None else {"fallback": self.fallback.to_json()}),
            **({} if self.driving is None else {"driving": self.driving.to_json()}),
            **({} if self.guarantee is None else {"guarantee": self.guarantee.to_json()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Contract":
        """Reads and validates contract.json.

        Raises:
            InputError: a key is unknown or missing, a value has a wrong type, a number is not finite,
                a box has its minimum above its maximum, a name is given twice, values lie outside of their box.
        """
        _check(isinstance(data, Mapping), "it", "be a mapping", data, "contract.json")
        _keys({key: value for key, value in data.items() if key not in _OPTIONAL}, _KEYS,
              "contract.json")
        _check(data["format"] == FORMAT, "format", f"be {FORMAT!r}", data["format"], "contract.json")
        for key in ("code_version", "data_version"):
            _text(data, key, "contract.json")
        check_task_name(data["task"], "contract.json")
        check_workload_name(data["workload"], "contract.json")
        _check(_is_integer(data["seed"]), "seed", "be an integer", data["seed"], "contract.json")
        inputs = _items(data["inputs"], "inputs", _INPUT_KEYS, _input)
        outputs = _items(data["outputs"], "outputs", _OUTPUT_KEYS, _output)
        names, targets = [item.name for item in inputs], [item.name for item in outputs]
        fallback = fallback_spec(data["fallback"], targets, names) if "fallback" in data else None
        driving = driving_spec(data["driving"], names, targets) if "driving" in data else None
        if driving is not None:
            _require_driven(driving, fallback, inputs, outputs)
        return cls(
            task=data["task"],
            workload=data["workload"],
            inputs=inputs,
            outputs=outputs,
            specification=_specification(data["specification"]),
            model=_model(data["model"]),
            code_version=data["code_version"],
            data_version=data["data_version"],
            seed=data["seed"],
            embedding=_embedding(data["embedding"], inputs) if "embedding" in data else None,
            one_hot=_groups(data["one_hot"], names) if "one_hot" in data else (),
            fallback=fallback,
            driving=driving,
            guarantee=guarantee_spec(data["guarantee"]) if "guarantee" in data else None,
        )


def _require_driven(driving: DrivingSpec, fallback: FallbackSpec | None, inputs: tuple[InputSpec, ...],
                    outputs: tuple[OutputSpec, ...]) -> None:
    """That settings, levels and safe ranges fit what else is said of the inputs and targets that they are of."""
    for one in inputs:
        if one.name not in driving.settings:
            continue
        value = driving.settings[one.name]
        _check(one.name not in driving.current.values(), f"setting {one.name}",
               "be an input that never changes, no present value of a target", value, "contract.json")
        _check(one.minimum <= value <= one.maximum and (one.values is None or value in one.values),
               f"setting {one.name}", f"lie in the verified box, {one.minimum:g} to {one.maximum:g}, whose edge would "
               "be shown in its place", value, "contract.json")
    if fallback is None:
        return
    for item in outputs:
        safe, levels = fallback.safe_ranges[item.name], driving.levels.get(item.name)
        low = -math.inf if item.physical_minimum is None else item.physical_minimum
        high = math.inf if item.physical_maximum is None else item.physical_maximum
        _check(low <= safe.minimum and safe.maximum <= high, f"safe range of {item.name}",
               f"lie in its physical range {low:g} to {high:g}", [safe.minimum, safe.maximum], "contract.json")
        _check(levels is None or {safe.minimum, safe.maximum} <= {*levels}, f"levels of {item.name}",
               "have the ends of its safe range among them", levels, "contract.json")


def _entry(item: InputSpec) -> dict[str, Any]:
    entry = vars(item).copy()
    values = entry.pop("values")
    return entry if values is None else {**entry, "values": list(values)}


def _items(data: Any, key: str, keys: tuple[str, ...], build: Callable[[dict[str, Any], str], Item]
           ) -> tuple[Item, ...]:
    _check(isinstance(data, list) and bool(data), key, "be a list of at least one", data, "contract.json")
    items = []
    for number, item in enumerate(data):
        where = f"contract.json, {key}[{number}]"
        _check(isinstance(item, Mapping), "it", "be a mapping", item, where)
        _keys({name: value for name, value in item.items() if (key, name) != ("inputs", "values")}, keys, where)
        for name in keys:
            if name in _BOUNDS:
                optional = name.startswith("physical_")
                usable = is_finite_number(item[name]) or (optional and item[name] is None)
                _check(usable, name, f"be a finite number{' or null' * optional}", item[name], where)
            else:
                _text(item, name, where, empty=name != "name")
        _bounds(item, where)
        items.append(build(dict(item), where))
    names = [item["name"] for item in data]
    _check(len(set(names)) == len(names), "names", "be unique", names, f"contract.json, {key}")
    return tuple(items)


def _input(item: dict[str, Any], where: str) -> InputSpec:
    values = item.pop("values", None)
    if values is None:
        return InputSpec(**item)
    usable = isinstance(values, list) and bool(values) and all(map(is_finite_number, values)) and all(
        a < b for a, b in pairwise(values)) and item["minimum"] <= values[0] and values[-1] <= item["maximum"]
    _check(usable, "values", "be ascending numbers inside of the box", values, where)
    return InputSpec(**item, values=tuple(values))


def _output(item: dict[str, Any], where: str) -> OutputSpec:
    _check(item["kind"] in KINDS, "kind", f"be one of {', '.join(KINDS)}", item["kind"], where)
    return OutputSpec(**item)


def _groups(data: Any, names: list[str]) -> tuple[tuple[str, ...], ...]:
    usable = isinstance(data, list) and all(isinstance(group, list) and len(group) > 1 for group in data)
    members = [name for group in data for name in group] if usable else []
    known = all(isinstance(name, str) and name in names for name in members)
    _check(usable and known and len(set(members)) == len(members), "one_hot",
           "be groups of at least two inputs, each input in one", data, "contract.json")
    return tuple(tuple(group) for group in data)


def _bounds(item: Mapping[str, Any], where: str) -> None:
    low, high = item["minimum"], item["maximum"]
    physical_low = -math.inf if item["physical_minimum"] is None else item["physical_minimum"]
    physical_high = math.inf if item["physical_maximum"] is None else item["physical_maximum"]
    name = item["name"]
    _check(low <= high, f"box of {name}", "have its minimum at or below its maximum", [low, high], where)
    _check(
        low <= physical_high and physical_low <= high and physical_low <= physical_high,
        f"box of {name}", f"meet the physical range {physical_low}..{physical_high}", [low, high], where,
    )  # fmt: skip


def _model(data: Any) -> ModelSpec:
    where = "contract.json, model"
    _keys(data, _MODEL_KEYS, where)
    _check(data["file"] == MODEL_FILE, "file", f"be {MODEL_FILE!r}", data["file"], where)
    _digest(data["sha256"], where)
    opset = data["opset"]
    _check(_is_integer(opset) and opset > 0, "opset", "be a positive integer", opset, where)
    _text(data, "input", where)
    _text(data, "output", where)
    return ModelSpec(**data)


def _embedding(data: Any, inputs: tuple[InputSpec, ...]) -> EmbeddingSpec:
    where = "contract.json, embedding"
    _keys(data, _EMBEDDING_KEYS, where)
    _check(data["file"] == ENCODER_FILE, "file", f"be {ENCODER_FILE!r}", data["file"], where)
    _digest(data["sha256"], where)
    _text(data, "target", where)
    _check(_is_integer(data["runs"]) and data["runs"] > 0, "runs", "be a positive integer", data["runs"], where)
    for key in ("similarity", "threshold"):
        _check(is_finite_number(data[key]), key, "be a finite number", data[key], where)
    names = {item.name for item in inputs}
    for key in ("inputs", "configuration"):
        known = isinstance(data[key], list) and bool(data[key]) and all(
            isinstance(name, str) and name in names for name in data[key])
        _check(known and len(set(data[key])) == len(data[key]), key, "be a list of inputs, each once", data[key], where)
    _check(set(data["inputs"]) | set(data["configuration"]) == names
           and not set(data["inputs"]) & set(data["configuration"]),
           "inputs", "be of the embedding or of the configuration", data["inputs"], where)
    own = data["own"]
    usable = isinstance(own, list) and len(own) == len(data["inputs"]) and all(is_finite_number(value) for value in own)
    _check(usable, "own", "be one finite number for each input of the embedding", own, where)
    boxes = {item.name: item for item in inputs}
    for name, value in zip(data["inputs"], own, strict=True):
        inside = boxes[name].minimum <= value <= boxes[name].maximum
        _check(inside, f"own {name}", "lie in the verified box", value, where)
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return EmbeddingSpec(**values)


def _digest(digest: Any, where: str) -> None:
    _check(is_sha256(digest), "sha256", "be 64 hex digits", digest, where)


def _specification(data: Any) -> SpecificationSpec:
    where = "contract.json, specification"
    _keys(data, _SPECIFICATION_KEYS, where)
    _check(data["file"] == SPECIFICATION_FILE, "file", f"be {SPECIFICATION_FILE!r}", data["file"], where)
    _digest(data["sha256"], where)
    _text(data, "statement", where)
    return SpecificationSpec(**data)


def _keys(data: Any, keys: tuple[str, ...], where: str) -> None:
    _check(isinstance(data, Mapping), "it", "be a mapping", data, where)
    for key in data:
        if key not in keys:
            raise InputError(f"key must be a known one, got {key!r} ({where}); {nearest(str(key), keys)}")
    missing = [key for key in keys if key not in data]
    _check(not missing, "keys", f"include {', '.join(missing)}", sorted(map(str, data)), where)


def _text(data: Mapping[str, Any], key: str, where: str, empty: bool = False) -> None:
    check_label(data[key], key, where, empty)


def _check(holds: bool, what: str, rule: str, value: Any, where: str) -> None:
    if not holds:
        raise InputError(f"{what} must {rule}, got {value!r} ({where})")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
