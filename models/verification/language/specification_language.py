"""The specification language of task files and SPEC.yaml: parsed YAML -> `Specification`.

    tolerance: 1.0e-4            # slack of monotone, see specification.py; default 1e-4, of SPEC.yaml see tolerance.py
    box: {psi_cpu_some: [0, 1]}  # raw units; in task files the others take the range of the training data
    inputs: {cores: {values: [1, 2, 4, 8]}}   # inputs that take finitely many values
    one_hot: [[is_a, is_b, is_c]]             # of each group exactly one is 1, the others are 0
    properties:
      - monotone: {features: [psi_cpu_some, psi_io_full], direction: increasing, output: p50}
      - range: {output: p50, minimum: 0, maximum: 250}
      - order: {upper: p99, lower: p50, margin: 0}             # a side may also be an input
      - robust: {points: [[0.1, 0.2]], radius: 0.05, change: 0.1, output: p50}
      - share: {of: {range: {output: p50, maximum: 200}}, at_least: 0.99, confidence: 0.999, samples: 20000}

Any property may have a condition, `when: {psi_cpu_some: [0, 0.3]}`, which narrows the box for it alone.

`output` may be left out where there is one. docs/reference/specification.md has an example of every kind. SPEC.yaml
also names the network's inputs and outputs: `features: [...]`, `outputs: [...]`; by default x0, x1, ... and y0, ...;
and may say their units, which a counterexample is printed with: `units: {cores: vCPU, p50: ms}`. There `tolerance` may
be an amount for each output, `{p50: 0.02}`, over the box of a feature, and `rounding: {p50: 0.002}` limits what
execution may add.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.errors import InputError, nearest
from feature_store.strict_yaml import read_yaml
from models.verification.language.domain import narrowed
from models.verification.language.property_language import (
    PropertyReader,
    index_of,
    is_list,
    located,
    read_number,
    require_known,
)
from models.verification.language.specification import DEFAULT_TOLERANCE, Specification
from models.verification.language.tolerance import with_relative_tolerance, with_tolerance
from models.verification.network.graph import Graph

FIELDS = ("tolerance", "box", "inputs", "one_hot", "properties")
FILE_FIELDS = (*FIELDS, "features", "outputs", "units", "rounding")


def parse_specification(
    data: Mapping[str, Any], feature_names: Sequence[str], box: Mapping[str, tuple[float, float]], where: str,
    output_names: Sequence[str] = ("output",), units: Mapping[str, str] | None = None,
) -> Specification:
    """Builds a specification from parsed YAML.

    Args:
        data: the mapping described in the module docstring.
        feature_names: the n inputs of the model, in order.
        box: default (minimum, maximum) of features, in the same units as data["box"]. Inputs with finitely many
            values take their range.
        where: goes into error messages.
        output_names: the o outputs of the model, in order.
        units: of the inputs and outputs that have one, by name.

    Raises:
        InputError: unknown field, property, feature or output (with the nearest known name), a value of the wrong
            kind, a feature without a box, lower > upper, contradicting directions, no property.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"specification must be a mapping of {', '.join(FIELDS)}, got {data!r} ({where})")
    require_known(data, FIELDS, where)
    names = tuple(feature_names)
    given = data.get("box") or {}
    if not isinstance(given, Mapping):
        raise InputError(f"box must be a mapping of feature to [lower, upper], got {given!r} ({where})")
    walls: dict[str, tuple[float, float]] = {}
    for name, wall in given.items():
        index_of(name, names, where)
        if not is_list(wall) or len(wall) != 2:
            raise InputError(f"box must give [lower, upper], got {wall!r} ({where}: feature {name!r})")
        low, high = (read_number(side, "wall of the box", f"{where}: feature {name!r}") for side in wall)
        walls[name] = (low, high)
    choices, one_hot = _choices(data.get("inputs"), names, where), _groups(data.get("one_hot"), names, where)
    finite = {names[i]: (values[0], values[-1]) for i, values in choices.items()}
    finite |= {names[i]: (0.0, 1.0) for group in one_hot for i in group}
    walls = {name: box[name] for name in names if name in box} | finite | walls
    if missing := [name for name in names if name not in walls]:
        raise InputError(f"box must be given for every input, got none for {', '.join(missing)} ({where})")
    entries = data.get("properties") or []
    if not is_list(entries):
        raise InputError(f"properties must be a list, got {entries!r} ({where})")
    reader = PropertyReader(names, tuple(output_names), where)
    properties = tuple(reader.read(entry) for entry in entries)
    tolerance = read_number(data.get("tolerance", DEFAULT_TOLERANCE), "tolerance", where)
    lower, upper = np.array([walls[name] for name in names], dtype=np.float64).reshape(-1, 2).T
    found = located(lambda: Specification(names, lower, upper, properties, tolerance, tuple(output_names), choices,
                                          one_hot, units or {}), where)
    for number, rule in enumerate(properties):
        located(partial(narrowed, found, rule.when), f"{where}: properties[{number}]")
    return found


def read_specification(path: Path, graph: Graph, seconds: float = math.inf) -> Specification:
    """Reads SPEC.yaml for a network.

    Where the file gives no tolerance, the default is a share of what the output does over the box (tolerance.py).
    Units are by name and in the file's order. seconds: refuse the file if reading takes longer.

    Raises InputError as `parse_file` does, and where the file is not YAML (with the line) or repeats a key.
    """
    data = read_yaml(path, "specification", seconds)
    found = parse_file(data, graph.inputs, graph.outputs, str(path))
    return found if "tolerance" in data else with_relative_tolerance(graph, found)


def parse_file(data: Any, inputs: int, outputs: int, where: str) -> Specification:
    """What a parsed SPEC.yaml says of a network with so many inputs and outputs.

    Raises InputError as `parse_specification` does, and where the file names another number of inputs or outputs,
    leaves the box of an input open, or gives a unit, a tolerance or a limit of rounding to an unknown name.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"specification must be a mapping of {', '.join(FILE_FIELDS)}, got {data!r} ({where})")
    require_known(data, FILE_FIELDS, where)
    features = _names(data.get("features"), "features", "x", inputs, where)
    named = _names(data.get("outputs"), "outputs", "y", outputs, where)
    units = _units(data.get("units"), (*features, *named), where)
    amounts, limits = data.get("tolerance"), data.get("rounding", {})
    body = {key: value for key, value in data.items()
            if key in FIELDS and not (key == "tolerance" and isinstance(amounts, Mapping))}
    found = parse_specification(body, features, {}, where, named, units)
    if not isinstance(limits, Mapping):
        raise InputError(f"rounding must be a mapping of output to the most that execution may add, got {limits!r} "
                         f"({where})")
    rounding = {named.index(name): value for name, value in _of_outputs(limits, "rounding", named, where).items()}
    found = located(lambda: replace(found, rounding=rounding), where)
    if not isinstance(amounts, Mapping):
        return found
    given = _of_outputs(amounts, "tolerance", named, where)
    if ordered := [name for output, name in enumerate(named) if name not in given and found.ordered(output)]:
        raise InputError(f"tolerance must be given for every output that is monotone, got none for "
                         f"{', '.join(ordered)} ({where})")
    return with_tolerance(found, [given.get(name, 0.0) for name in named])


def _of_outputs(given: Mapping[Any, Any], what: str, outputs: tuple[str, ...], where: str) -> dict[str, float]:
    """A number >= 0 by the name of an output."""
    found = {}
    for name, value in given.items():
        if name not in outputs:
            raise InputError(f"{what} must be of an output of the model, got {name!r} ({where}); "
                             + nearest(str(name), outputs))
        found[name] = read_number(value, what, f"{where}: {what}: {name}")
        if not 0 <= found[name] < math.inf:
            raise InputError(f"{what} must be a number >= 0, got {value!r} ({where}: {what}: {name})")
    return found


def _choices(given: Any, names: tuple[str, ...], where: str) -> dict[int, tuple[float, ...]]:
    if not isinstance(given, Mapping | None):
        raise InputError(f"inputs must be a mapping of feature to {{values: [...]}}, got {given!r} ({where})")
    found = {}
    for name, entry in (given or {}).items():
        feature, place = index_of(name, names, where), f"{where}: feature {name!r}"
        if not isinstance(entry, Mapping):
            raise InputError(f"input must have values, got {entry!r} ({place})")
        require_known(entry, ("values",), place)
        values = entry.get("values")
        if not is_list(values) or not values:
            raise InputError(f"values must be a list of at least one number, got {values!r} ({place})")
        numbers = sorted(read_number(value, "value", place) for value in values)
        if len(set(numbers)) < len(numbers):
            raise InputError(f"values must be distinct, got {values!r} ({place})")
        found[feature] = tuple(numbers)
    return found


def _groups(given: Any, names: tuple[str, ...], where: str) -> tuple[tuple[int, ...], ...]:
    if given is None:
        return ()
    if not is_list(given) or not all(is_list(group) for group in given):
        raise InputError(f"one_hot must be a list of lists of features, got {given!r} ({where})")
    return tuple(tuple(index_of(name, names, where) for name in group) for group in given)


def _names(given: Any, field: str, letter: str, count: int, where: str) -> tuple[str, ...]:
    if given is None:
        return tuple(f"{letter}{i}" for i in range(count))
    if not is_list(given) or not all(isinstance(name, str) for name in given) or len(set(given)) < len(given):
        raise InputError(f"{field} must be a list of distinct names, got {given!r} ({where})")
    if len(given) != count:
        raise InputError(f"{field} must name the network's {count} {'inputs' if letter == 'x' else 'outputs'}, got "
                         f"{len(given)} names ({where})")
    return tuple(given)


def _units(given: Any, names: tuple[str, ...], where: str) -> dict[str, str]:
    if not isinstance(given, Mapping | None):
        raise InputError(f"units must be a mapping of input or output to its unit, got {given!r} ({where})")
    for name, unit in (given or {}).items():
        if name not in names:
            raise InputError(f"unit must be of an input or an output of the model, got {name!r} ({where}); "
                             + nearest(str(name), names))
        if not isinstance(unit, str) or not unit.strip() or not unit.isprintable():
            raise InputError(f"unit must be printable text, got {unit!r} ({where}: {name!r})")
    return dict(given or {})
