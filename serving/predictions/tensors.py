"""Requests and answers of the Open Inference Protocol v2, between the bytes of a body and a `Predictor`.

    read_question(body, ...) -> Question    rows [rows, inputs] float64, raw units, columns in the contract's order
    answer(question, ...)    -> body        a tensor [rows] for each output that is asked for, float32

An input comes as one tensor of all columns, [rows, inputs], under the name that the contract gives the model's input;
or as one tensor for each column, [rows] or [rows, 1], under its own name. Tensors are JSON, or little-endian bytes
behind the JSON (Triton's binary extension, the default of its client). What the numbers may be is the contract's to say
(serving/inputs.py).

Source: Open Inference Protocol, version 2, over REST (kserve/open-inference-protocol).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest
from feature_store.strict_json import parse_json
from serving.contract import Contract
from serving.session import Prediction

DATATYPES: Mapping[str, str] = {"FP32": "<f4", "FP64": "<f8", "INT64": "<i8"}  # name -> of the bytes
_LARGEST_AXIS = 2**31  # entry of a shape: NumPy counts in 64 bits, also where another entry is 0
_OF_JSON: Mapping[str, set[type]] = {"FP32": {int, float}, "FP64": {int, float}, "INT64": {int}}


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        rows: [rows, inputs], raw units.
        outputs: names, in the order of the answer; True: as bytes behind the JSON.
        id: of the request, which the answer repeats; None: it has none.
    """

    rows: NDArray[np.float64]
    outputs: Mapping[str, bool]
    id: str | None


def read_question(body: bytes, json_bytes: int, contract: Contract) -> Question:
    """A request for a model of this contract.

    Args:
        json_bytes: length of the JSON at the beginning of the body, behind which tensors follow as bytes.

    Raises:
        InputError: it is not as the protocol or the contract says.
    """
    data = read_object(body[:json_bytes], "request")
    tail, tensors = body[json_bytes:], dict[str, NDArray[Any]]()
    for item in _list(data, "inputs"):
        name, array, tail = _tensor(item, tail)
        if name in tensors:
            raise InputError(f"input must be given once, got {name!r} twice (inputs)")
        tensors[name] = array
    if tail:
        raise InputError(f"body must end with the last tensor, got {len(tail)} bytes more")
    identity = data.get("id")
    if identity is not None and not isinstance(identity, str):
        raise InputError(f"id must be a text, got {identity!r:.40}")
    return Question(_rows(tensors, contract), _outputs(data, contract), identity)


def answer(question: Question, prediction: Prediction, model: Mapping[str, str], contract: Contract,
           sha256: str) -> tuple[bytes, int]:
    """The body of the answer, and the length of the JSON at its beginning.

    Args:
        model: its `model_name` and `model_version`.
        sha256: names the bundle.
    """
    kinds = {item.name: item.kind for item in contract.outputs}
    outputs, parts = list[dict[str, Any]](), list[bytes]()
    for name, is_binary in question.outputs.items():
        values = np.array(prediction.columns[name], dtype="<f4")
        parameters: dict[str, Any] = {"unit": prediction.units[name], "kind": kinds[name]}
        output = {"name": name, "datatype": "FP32", "shape": [len(values)], "parameters": parameters}
        if is_binary:
            parts.append(values.tobytes())
            parameters["binary_data_size"] = len(parts[-1])
        else:
            output["data"] = values
        outputs.append(output)
    told = {"bundle_sha256": sha256, "rows_outside_box": prediction.rows_outside,
            "outside_box": json_text(prediction.outside_box), "strange": json_text(prediction.strange),
            "out_of_distribution": prediction.out_of_distribution}
    head = orjson.dumps({**model, **({} if question.id is None else {"id": question.id}), "parameters": told,
                         "outputs": outputs}, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join([head, *parts]), len(head)


def json_text(names: Sequence[str]) -> str:
    """Names as the text of a JSON list: the protocol's parameters are texts, numbers and truth values alone."""
    return orjson.dumps(names).decode()


def read_object(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object. Raises InputError: it is none, or a key is given twice; NaN and Infinity are no JSON."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{what} must be JSON, got {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"{what} must be a JSON object, got {type(data).__name__}")
    parse_json(text, what, InputError)  # of a key that is given twice orjson takes the last one and says nothing
    return data


def _tensor(item: Any, tail: bytes) -> tuple[str, NDArray[Any], bytes]:
    """Name, values and the bytes that are left."""
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise InputError(f"input must be an object with a name, got {item!r:.60} (inputs)")
    name, datatype, shape = item["name"], item.get("datatype"), item.get("shape")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise InputError(f"datatype must be one of {', '.join(DATATYPES)}, got {datatype!r:.40} (input {name!r:.60})")
    if not isinstance(shape, list) or len(shape) not in (1, 2) or not all(
            type(one) is int and 0 <= one <= _LARGEST_AXIS for one in shape):
        raise InputError(f"shape must be one or two whole numbers up to {_LARGEST_AXIS}, got {shape!r:.60} (input "
                         f"{name!r:.60})")
    count, size = math.prod(shape), _parameters(item).get("binary_data_size")
    if size is None:
        values: Any = np.array(_flat(item.get("data"), shape, datatype, name), dtype=np.float64)
    else:
        dtype = np.dtype(DATATYPES[datatype])
        if type(size) is not int or size != count * dtype.itemsize or size > len(tail) or "data" in item:
            raise InputError(f"input must be {count * dtype.itemsize} bytes behind the JSON and have no data, got "
                             f"binary_data_size {size!r:.40} and {len(tail)} bytes (input {name!r:.60})")
        values, tail = np.frombuffer(tail[:size], dtype), tail[size:]
    return name, values.reshape(shape), tail


def _flat(data: Any, shape: list[int], datatype: str, name: str) -> list[Any]:
    """The numbers of a tensor in row-major order, written flat or nested as its shape is."""
    count, where = math.prod(shape), f"(input {name!r:.60})"
    if len(shape) == 2 and isinstance(data, list) and data and isinstance(data[0], list):
        if len(data) != shape[0] or not all(isinstance(row, list) and len(row) == shape[1] for row in data):
            raise InputError(f"data must be {shape[0]} lists of {shape[1]}, as shape says, got other ones {where}")
        data = [value for row in data for value in row]
    if not isinstance(data, list) or len(data) != count:
        got = f"{len(data)}" if isinstance(data, list) else type(data).__name__
        raise InputError(f"data must be {count} numbers, as shape says, got {got} {where}")
    if wrong := set(map(type, data)) - _OF_JSON[datatype]:
        raise InputError(f"data must be numbers of {datatype}, got {', '.join(sorted(one.__name__ for one in wrong))} "
                         f"{where}")
    return data


def _rows(tensors: Mapping[str, NDArray[Any]], contract: Contract) -> NDArray[np.float64]:
    names = contract.input_names
    if list(tensors) == [contract.model.input]:
        rows = tensors[contract.model.input]
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise InputError(f"shape of {contract.model.input!r} must be [rows, {len(names)}], got {list(rows.shape)}; "
                             f"its columns are {', '.join(names)}")
        return rows.astype(np.float64)
    if unknown := [name for name in tensors if name not in names]:
        raise InputError(f"input must be {contract.model.input!r} or a column's, got {unknown[0]!r:.60}; "
                         f"{nearest(unknown[0], names)}")
    if missing := [name for name in names if name not in tensors]:
        raise InputError(f"inputs must include {', '.join(missing)}, got {', '.join(tensors) or 'none'}")
    shapes = [tensors[name].shape for name in names]
    if len({shape[0] for shape in shapes}) != 1 or any(shape[1:] not in ((), (1,)) for shape in shapes):
        raise InputError("shapes of columns must be [rows] or [rows, 1] with as many rows each, got "
                         f"{', '.join(f'{name} {list(shape)}' for name, shape in zip(names, shapes, strict=True))}")
    return np.column_stack([tensors[name].reshape(-1).astype(np.float64) for name in names])


def _outputs(data: Mapping[str, Any], contract: Contract) -> dict[str, bool]:
    names, is_binary = [item.name for item in contract.outputs], _parameters(data).get("binary_data_output") is True
    if not data.get("outputs"):
        return dict.fromkeys(names, is_binary)
    asked = dict[str, bool]()
    for item in _list(data, "outputs"):
        name = item.get("name") if isinstance(item, dict) else item
        if name not in names or name in asked:
            raise InputError(f"outputs must be the model's, each once, got {name!r:.60}; "
                             f"{nearest(str(name), names)}")
        asked[name] = _parameters(item).get("binary_data", is_binary) is True
    return asked


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(found := data.get(key), list):
        raise InputError(f"{key} must be a list, got {type(found).__name__}")
    return found


def _parameters(item: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(found := item.get("parameters", {}), dict):
        raise InputError(f"parameters must be an object, got {type(found).__name__}")
    return found
