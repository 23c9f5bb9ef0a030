"""What an ONNX file says of itself that its contract repeats: written into contract.json, and held against it again."""

import onnx

from feature_store.errors import InputError


def model_facts(content: bytes) -> dict[str, str | int]:
    """`opset` of ONNX's own operators, names of the one `input` and the one `output`.

    Raises:
        InputError: it is no ONNX file, or has several of these.
    """
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, which has several
        raise InputError(f"model must be a valid ONNX file, got {type(error).__name__}") from error
    weights = {tensor.name for tensor in model.graph.initializer}  # old files list them among the inputs
    found = {
        "opset": sorted({one.version for one in model.opset_import if one.domain in ("", "ai.onnx")}),
        "input": [one.name for one in model.graph.input if one.name not in weights],
        "output": [one.name for one in model.graph.output]}
    if several := [name for name, values in found.items() if len(values) != 1]:
        raise InputError(f"model must have one {several[0]}, got {found[several[0]]}")
    return {name: values[0] for name, values in found.items()}
