"""A digest of what a model computes: equal for files that differ in names and texts alone.

Flow: `register` writes it beside a version (serving/card.py), and compares it with those of versions that a person took
out (serving/repeated_model.py): another doc_string does not bring a retired model back.

The digest of a value is that of the operator that makes it, of its attributes and of the digests of its inputs; that of
an input of the model its position; that of a weight its type, shape and numbers. So names, texts, metadata, what nobody
reads, and whether a weight is an initializer or a Constant leave no trace. Weights that differ in the last bit, and
neurons in another order, are another model.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def function_digest(model: bytes) -> str:
    """Hex SHA-256 of what the ONNX file `model` computes; files of any opset, for operators keep their meaning."""
    import onnx  # only where something is registered: controllers do without it

    return _graph(onnx.load_model_from_string(model).graph, {})


def _graph(graph: Any, outer: Mapping[str, str]) -> str:
    """outer: digests of the values that a subgraph may read, by name."""
    values = {**outer, **{tensor.name: _tensor(tensor) for tensor in graph.initializer}}
    given = [value for value in graph.input if value.name not in values]
    values |= {value.name: _digest("input", number, value.type.tensor_type.elem_type)
               for number, value in enumerate(given)}
    for node in graph.node:
        inputs = [values.get(name, "") for name in node.input]
        if node.op_type == "Identity":
            made = inputs
        elif node.op_type == "Constant" and [attribute.name for attribute in node.attribute] == ["value"]:
            made = [_tensor(node.attribute[0].t)]
        else:
            operator = _digest(node.domain, node.op_type, _attributes(node.attribute, values), inputs)
            made = [_digest(operator, number) for number in range(len(node.output))]
        values |= dict(zip(node.output, made, strict=False))
    return _digest("graph", [values.get(value.name, "") for value in graph.output])


def _attributes(attributes: Iterable[Any], values: Mapping[str, str]) -> list[list[Any]]:
    import onnx

    found = []
    for attribute in sorted(attributes, key=lambda one: str(one.name)):
        match attribute.type:
            case onnx.AttributeProto.TENSOR:
                content = _tensor(attribute.t)
            case onnx.AttributeProto.GRAPH:
                content = _graph(attribute.g, values)
            case _:
                plain = onnx.AttributeProto()
                plain.CopyFrom(attribute)
                plain.ClearField("doc_string")
                content = plain.SerializeToString(deterministic=True).hex()
        found.append([attribute.name, content])
    return found


def _tensor(tensor: Any) -> str:
    from onnx import numpy_helper

    array = numpy_helper.to_array(tensor)
    return _digest("weight", array.dtype.str, list(array.shape), hashlib.sha256(array.tobytes()).hexdigest())


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
