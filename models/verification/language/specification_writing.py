"""A `Specification` as the mapping of SPEC.yaml that says it, with nothing left to defaults.

The inverse of specification_language.py: `parse_file` of what is written is the same specification. Bundles ship with
it as specification.yaml, so that whoever has that file needs nothing else to know what was proved.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from models.verification.language.properties import (
    Conditions,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Property,
    Robustness,
    Share,
    Side,
    side_name,
)
from models.verification.language.specification import Specification

HEADER = """\
# What must hold of model.onnx for every input in the box, in raw units: docs/reference/specification.md.
# Prove it again: assay verify model.onnx --specification specification.yaml
# Check the proof: assay check proof.npz --model model.onnx --specification specification.yaml
"""


def written_out(specification: Specification) -> dict[str, Any]:
    """The content of SPEC.yaml as plain values."""
    names, outputs = specification.feature_names, specification.output_names
    data: dict[str, Any] = {
        "features": list(names), "outputs": list(outputs), "units": dict(specification.units),
        "box": {name: [float(low), float(high)]
                for name, low, high in zip(names, specification.lower, specification.upper, strict=True)}}
    if specification.choices:
        data["inputs"] = {names[i]: {"values": [float(value) for value in values]}
                          for i, values in sorted(specification.choices.items())}
    if specification.one_hot:
        data["one_hot"] = [[names[i] for i in group] for group in specification.one_hot]
    data["tolerance"] = specification.tolerance
    if specification.over_the_box is not None:
        data["tolerance"] = {name: float(most) for name, most in
                             zip(outputs, specification.over_the_box, strict=True)}
    if specification.rounding:
        data["rounding"] = {outputs[output]: float(most) for output, most in sorted(specification.rounding.items())}
    data["properties"] = [_entry(rule, specification) for rule in specification.properties]
    return data


def as_yaml(data: Mapping[str, Any]) -> str:
    """The text of specification.yaml; numbers keep every digit."""
    return HEADER + yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)


def _entry(rule: Property, specification: Specification) -> dict[str, Any]:
    names, outputs = specification.feature_names, specification.output_names

    def called(side: Side) -> str:
        return side_name(side, names, outputs)

    when = _when(rule.when, names)
    match rule:
        case Monotonicity():
            return {"monotone": {"features": [names[i] for i in rule.features], "direction": rule.direction,
                                 "output": outputs[rule.output], **when}}
        case OutputRange():
            sides = {"minus": None if rule.minus is None else called(rule.minus), "minimum": rule.minimum,
                     "maximum": rule.maximum}
            return {"range": {"output": outputs[rule.output],
                              **{key: value for key, value in sides.items() if value is not None}, **when}}
        case OutputOrder():
            return {"order": {"upper": called(rule.upper), "lower": called(rule.lower), "factor": rule.factor,
                              "margin": rule.margin, **_at_least(rule, names), **when}}
        case Robustness():
            radius = {name: float(side) for name, side in zip(names, rule.radius, strict=True)}
            return {"robust": {"points": rule.points.tolist(), "radius": radius, "change": rule.change,
                               "output": outputs[rule.output], **when}}
        case Share():
            return {"share": {"of": _entry(rule.of, specification), "at_least": rule.at_least,
                              "confidence": rule.confidence, "samples": rule.samples, **when}}


def _at_least(rule: OutputOrder, names: tuple[str, ...]) -> dict[str, Any]:
    return {"at_least": {names[more]: names[less] for more, less in rule.at_least}} if rule.at_least else {}


def _when(conditions: Conditions, names: tuple[str, ...]) -> dict[str, Any]:
    if not conditions:
        return {}
    return {"when": {names[one.feature]: [one.lower, one.upper] for one in conditions}}
