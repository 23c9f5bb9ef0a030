"""The specification language of task files and SPEC.yaml: parsed YAML -> `Specification`.

    tolerance: 1.0e-4            # slack of monotone, see specification.py; default 1e-4, of SPEC.yaml see tolerance.py
    box: {psi_cpu_some: [0, 1]}  # raw units; in task files the others take the range of the training data
    inputs: {cores: {values: [1, 2, 4, 8]}}   # inputs that take finitely many values
    one_hot: [[is_a, is_b, is_c]]             # of each group exactly one is 1, the others are 0
    properties:
      - monotone: {features: [psi_cpu_some, psi_io_full], direction: increasing, output: p50}
      - range: {output: p50, minimum: 0, maximum: 250}
      - order: {upper: p99, lower: p50, margin: 0}             # a side may also be an input; `factor` of lower
      - robust: {points: [[0.1, 0.2]], radius: 0.05, change: 0.1, output: p50}
      - share: {of: {range: {output: p50, maximum: 200}}, at_least: 0.99, confidence: 0.999, samples: 20000}

Any property may have a condition, `when: {psi_cpu_some: [0, 0.3]}`, which narrows the box for it alone.

`output` may be left out where there is one. docs/reference/specification.md has an example of every kind. SPEC.yaml
also names the network's inputs and outputs: `features: [...]`, `outputs: [...]`; by default x0, x1, ... and y0, ...;
and may say their units, which a counterexample is printed with: `units: {cores: vCPU, p50: ms}`. There `tolerance` may
be an amount for each output, `{p50: 0.02}`, over the box of a feature, and `rounding: {p50: 0.002}` limits what
execution may add.

specification_file.py has the form that may be written; here names are held against the model's and values against each
other. A file that specification_writing.py wrote, as bundles carry it, is told by being exactly what that would write,
and has its form for certain: it is read without specification_file.py, which imports pydantic, because a controller
checks proofs before it loads a model.
"""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feature_store.errors import InputError, nearest
from feature_store.names import look
from feature_store.strict_yaml import Lines, read_located_yaml
from feature_store.written.field_errors import FieldError, at_line, field_error, line_of
from models.verification.language.domain import narrowed, require_met
from models.verification.language.property_language import PropertyReader, at, index_of
from models.verification.language.specification import DEFAULT_TOLERANCE, Specification
from models.verification.language.specification_writing import written_out
from models.verification.language.tolerance import with_relative_tolerance, with_tolerance
from models.verification.network.graph import Function

if TYPE_CHECKING:
    from feature_store.written.model import Written

WHAT = "specification"
LARGEST, MOST_DIGITS = int(sys.float_info.max), 40  # of float64; that a message shows
LIKE_A_SENTENCE = re.compile(r"[,;.:!?]\s")
Walls = Mapping[str, tuple[float, float]]


def parse_specification(
    data: Any, feature_names: Sequence[str], box: Walls, where: str, output_names: Sequence[str] = ("output",),
    units: Mapping[str, str] | None = None, lines: Lines | None = None,
) -> Specification:
    """Builds a specification from the parsed YAML of a task file.

    Args:
        data: the mapping described in the module docstring.
        feature_names: the n inputs of the model, in order.
        box: default (minimum, maximum) of features, in the same units as data["box"]. Inputs with finitely many
            values take their range.
        where: goes into error messages.
        output_names: the o outputs of the model, in order.
        units: of the inputs and outputs that have one, by name.
        lines: of the data, where they come from a text.

    Raises:
        InputError: unknown field, property, feature or output (with the nearest known name), a value of the wrong
            kind, a feature without a box, lower > upper, contradicting directions, no property.
    """
    from feature_store.written.model import check_written
    from models.verification.language.specification_file import SpecificationFields

    fields = _plain(check_written(SpecificationFields, data, WHAT, where, lines))
    try:
        _require_exact(data)
        return _specification(fields, tuple(feature_names), box, tuple(output_names), units or {})
    except FieldError as error:
        raise _located(error, where, lines) from error


def read_specification(path: Path, function: Function, seconds: float = math.inf) -> Specification:
    """Reads SPEC.yaml for a network or a forest.

    Where the file gives no tolerance, the default is a share of what the output does over the box (tolerance.py).
    Units are by name and in the file's order. seconds: refuse the file if reading takes longer.

    Raises InputError as `parse_file` does, and where the file is not YAML (with the line) or repeats a key.
    """
    data, lines = read_located_yaml(path, WHAT, seconds)
    found = parse_file(data, function.inputs, function.outputs, str(path), lines)
    return found if "tolerance" in data else with_relative_tolerance(function, found)


def parse_file(data: Any, inputs: int, outputs: int, where: str, lines: Lines | None = None) -> Specification:
    """What a parsed SPEC.yaml says of a network with so many inputs and outputs.

    Raises InputError as `parse_specification` does, and where the file names another number of inputs or outputs,
    leaves the box of an input open, or gives a unit, a tolerance or a limit of rounding to an unknown name.
    """
    found = _written_by_us(data, inputs, outputs)
    if found is not None:
        return found
    try:
        from feature_store.written.model import check_written
        from models.verification.language.specification_file import SpecificationFile
    except ModuleNotFoundError as error:  # beside a controller
        raise InputError(f"{WHAT}: expected it as the export of a bundle writes it, for what people write is read with "
                         f"{error.name}, which is not installed {at_line(where, None)}") from error
    fields = _plain(check_written(SpecificationFile, data, WHAT, where, lines))
    try:
        _require_exact(data)
        return _file(fields, inputs, outputs)
    except FieldError as error:
        raise _located(error, where, lines) from error


def _plain(fields: "Written") -> dict[str, Any]:
    """Plain values, with the defaults of what was left out."""
    return fields.model_dump(exclude_none=True)


def _written_by_us(data: Any, inputs: int, outputs: int) -> Specification | None:
    """The specification, if the data are to the letter what is written out of it."""
    try:
        found = _file(data, inputs, outputs)
        return found if repr(written_out(found)) == repr(data) else None
    except (ArithmeticError, AttributeError, InputError, LookupError, TypeError, ValueError):  # of another form
        return None


def _located(error: FieldError, where: str, lines: Lines | None) -> InputError:
    if error.path:
        return field_error(error.path, str(error), where, lines)
    return InputError(f"{WHAT}: {error} {at_line(where, line_of(lines, ()))}")


def _file(fields: Mapping[str, Any], inputs: int, outputs: int) -> Specification:
    features = _names(fields.get("features"), "features", "x", inputs)
    named = _names(fields.get("outputs"), "outputs", "y", outputs)
    units = {str(name): str(unit) for name, unit in fields.get("units", {}).items()}
    for name, unit in units.items():
        with at("units", name):
            _require(name, (*features, *named), "an input or an output")
            _require_visible(unit)
    amounts = fields.get("tolerance")
    of_each = isinstance(amounts, Mapping)
    body = {key: value for key, value in fields.items() if key != "tolerance" or not of_each}
    found = _specification(body, features, {}, named, units)
    rounding = _of_outputs(fields.get("rounding", {}), "rounding", named)
    found = replace(found, rounding={named.index(name): value for name, value in rounding.items()})
    if not isinstance(amounts, Mapping):
        return found
    given = _of_outputs(amounts, "tolerance", named)
    if ordered := [name for output, name in enumerate(named) if name not in given and found.ordered(output)]:
        raise FieldError(["tolerance"], f"expected one for every output that is monotone, got none for "
                                        f"{', '.join(ordered)}")
    return with_tolerance(found, [given.get(name, 0.0) for name in named])


def _specification(fields: Mapping[str, Any], names: tuple[str, ...], box: Walls, outputs: tuple[str, ...],
                   units: Mapping[str, str]) -> Specification:
    _require_apart((*names, *outputs))
    walls: dict[str, tuple[float, float]] = {}
    for name, (low, high) in fields.get("box", {}).items():
        with at("box", name):
            index_of(name, names)
            walls[name] = (float(low), float(high))
            if low > high:
                raise FieldError([], f"expected lower <= upper, got [{low:g}, {high:g}]")
    choices, one_hot = _choices(fields.get("inputs", {}), names), _groups(fields.get("one_hot", ()), names)
    finite = {names[i]: (values[0], values[-1]) for i, values in choices.items()}
    finite |= {names[i]: (0.0, 1.0) for group in one_hot for i in group}
    walls = {name: box[name] for name in names if name in box} | finite | walls
    if missing := [name for name in names if name not in walls]:
        raise FieldError(["box"], f"expected walls for every input, got none for {', '.join(missing)}")
    reader = PropertyReader(names, outputs)
    properties = []
    for number, entry in enumerate(fields["properties"]):
        with at("properties", number):
            properties.append(reader.read(entry))
    lower, upper = np.array([walls[name] for name in names], dtype=np.float64).reshape(-1, 2).T
    with at():
        found = Specification(names, lower, upper, tuple(properties), float(fields.get("tolerance", DEFAULT_TOLERANCE)),
                              outputs, choices, one_hot, units)
    for number, rule in enumerate(properties):
        with at("properties", number):
            domain = narrowed(found, rule.when)
            require_met(rule, domain.lower[None], domain.upper[None], names)
    return found


def _of_outputs(given: Mapping[str, float], field: str, outputs: tuple[str, ...]) -> dict[str, float]:
    for name in given:
        with at(field, name):
            _require(name, outputs, "an output")
    return {name: float(value) for name, value in given.items()}


def _choices(given: Mapping[str, Mapping[str, Sequence[float]]],
             names: tuple[str, ...]) -> dict[int, tuple[float, ...]]:
    found = {}
    for name, entry in given.items():
        with at("inputs", name):
            values = sorted(float(value) for value in entry["values"])
            if len(set(values)) < len(values):
                raise FieldError(["values"], f"expected values that stand once each, got {list(entry['values'])}")
            found[index_of(name, names)] = tuple(values)
    return found


def _groups(given: Sequence[Sequence[str]], names: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    groups = []
    for number, group in enumerate(given):
        with at("one_hot", number):
            groups.append(tuple(index_of(name, names) for name in group))
    return tuple(groups)


def _names(given: Sequence[str] | None, field: str, letter: str, count: int) -> tuple[str, ...]:
    if given is None:
        return tuple(f"{letter}{i}" for i in range(count))
    if len(given) != count:
        raise FieldError([field], f"expected the network's {count} {'inputs' if letter == 'x' else 'outputs'}, got "
                                  f"{len(given)} names")
    names = tuple(str(name) for name in given)
    for number, name in enumerate(names):
        with at(field, number):
            _require_visible(name)
            if name in names[:number]:
                raise FieldError([], f"expected a name that stands once, got {name!r} twice")
    return names


def _require_apart(names: tuple[str, ...]) -> None:
    """Refuses different names that look the same: a reader would take one for the other."""
    looks: dict[str, str] = {}
    for name in names:
        if (other := looks.setdefault(look(name), name)) != name:
            raise FieldError([], f"expected names that a reader tells apart, got {other!a} and {name!a}")


def _require_exact(data: Any) -> None:
    """Refuses whole numbers that float64 does not have: another one would be proved than the one that is written."""
    if isinstance(data, int) and (abs(data) > LARGEST or int(float(data)) != data):
        raise FieldError([], f"expected a number that float64 has, got {str(data)[:MOST_DIGITS]}")
    for key, value in data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ():
        with at(key):
            _require_exact(value)


def _require_visible(text: str) -> None:
    """Refuses names and units that could pass for a part of the sentence that they stand in."""
    if not text.strip() or not text.isprintable():
        raise FieldError([], f"expected a printable text, got {text!r}")
    if LIKE_A_SENTENCE.search(text):
        raise FieldError([], f"expected a name without punctuation of a sentence, got {text!r}")


def _require(name: str, known: tuple[str, ...], what: str) -> None:
    if name not in known:
        raise FieldError([], f"expected {what} of the model, got {name!r}; {nearest(name, known)}")
