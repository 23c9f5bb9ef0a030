"""A verified network as an ONNX file that takes raw units: Sub, Mul (scaling), Gemm, Relu, ..., Gemm, Mul, Add, and,
where the target has a physical range, what holds the answer within it (physical_range.py).

The graph is written node by node, so that the independent checker can read it back without
interpretation: the weights in the file are the verified ones, to the last bit.

The file computes in float32 where the checker shows that this cannot break what is proved, and in float64, between two
Casts, where it can: then sums are off by 1e-12 instead of 1e-3 of the output's range at worst (docs/decisions/0010).

Symbols: n inputs; `telemetry` float32 (batch, n) raw units -> target float32 (batch, 1) raw units.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from feature_store.errors import RefusedError
from feature_store.scaling import FeatureScaling
from models.export.physical_range import UNBOUNDED, Range, range_layers
from models.verification.checker.chain import read_chain
from models.verification.execution import within_limits
from models.verification.language.specification import Specification
from models.verification.network.fully_connected import ReluNetwork

# The oldest opset in which all operators have today's meaning: readable by onnxruntime 1.12 and later.
OPSET = 17
IR_VERSION = 8
INPUT = "telemetry"


# Share of a limit of `rounding` that float32 may take up: clear of what the stored scaling rounds.
CLEAR = 0.5


def executable_onnx(network: ReluNetwork, scaling: FeatureScaling, output: str, metadata: Mapping[str, str],
                    specification: Specification, ends: Range = UNBOUNDED) -> bytes:
    """The file in float32 if execution then adds little enough, else in float64.

    Args as of `build_onnx`; specification: what must hold of it, in raw units, with its limits of rounding.
    """
    content = build_onnx(network, scaling, output, metadata, ends=ends)
    if within_limits(content, specification, CLEAR):
        return content
    return build_onnx(network, scaling, output, metadata, np.float64, ends)


def build_onnx(network: ReluNetwork, scaling: FeatureScaling, output: str, metadata: Mapping[str, str],
               dtype: type[np.floating] = np.float32, ends: Range = UNBOUNDED) -> bytes:
    """Serialises the network with its scaling.

    Args:
        scaling: ranges of the n features and of the target, raw units.
        output: name of the output, the target's.
        metadata: stored in the file's metadata_props.
        dtype: float32 or float64, in which it computes; input and output are float32 either way.
        ends: of the target's physical range, raw units, within which the answer is held.
    """
    wide = dtype is np.float64
    flowing, result = ("wide_input", "wide_output") if wide else (INPUT, output)
    low, high = (np.array(side, dtype=np.float64) for side in (scaling.features.minimum, scaling.features.maximum))
    base, top = scaling.target.minimum[0], scaling.target.maximum[0]
    tensors = {"feature_offset": low, "feature_factor": 1.0 / (high - low),
               "target_gain": np.array([top - base]), "target_offset": np.array([base])}
    nodes = [helper.make_node("Cast", [INPUT], [flowing], "widen", to=TensorProto.DOUBLE)] if wide else []
    nodes += [helper.make_node("Sub", [flowing, "feature_offset"], ["centred"], "centre"),
              helper.make_node("Mul", ["centred", "feature_factor"], ["layer_0_in"], "scale")]
    last, layers = len(network.weights) - 1, range_layers(ends, top - base)
    nodes += linear_layers(network.weights, network.biases, tensors)
    nodes += [helper.make_node("Mul", [f"layer_{last}", "target_gain"], ["unscaled"], "unscale"),
              helper.make_node("Add", ["unscaled", "target_offset"], ["range_0_in" if layers else result], "uncentre")]
    nodes += _range_nodes(layers, result, tensors)
    if wide:
        nodes.append(helper.make_node("Cast", [result], [output], "narrow", to=TensorProto.FLOAT))
    return serialised(nodes, (INPUT, network.inputs), (output, 1), tensors, metadata, dtype)


def _range_nodes(layers: Sequence[tuple[float, float]], result: str,
                 tensors: dict[str, NDArray[Any]]) -> list[onnx.NodeProto]:
    """Nodes from `range_0_in` to the result; adds their tensors."""
    nodes = []
    for k, (factor, shift) in enumerate(layers):
        flowing, given = f"range_{k}_in", f"range_{k}" if k < len(layers) - 1 else result
        if factor != 1:
            tensors[f"range_{k}_factor"] = np.array([factor])
            nodes.append(helper.make_node("Mul", [flowing, f"range_{k}_factor"], [f"range_{k}_turned"], f"turn_{k}"))
            flowing = f"range_{k}_turned"
        tensors[f"range_{k}_shift"] = np.array([shift])
        nodes.append(helper.make_node("Add", [flowing, f"range_{k}_shift"], [given], f"shift_{k}"))
        if k < len(layers) - 1:
            nodes.append(helper.make_node("Relu", [given], [f"range_{k + 1}_in"], f"hold_{k}"))
    return nodes


def linear_layers(weights: Sequence[NDArray[Any]], biases: Sequence[NDArray[Any]],
                  tensors: dict[str, NDArray[Any]]) -> list[onnx.NodeProto]:
    """Nodes from `layer_0_in` to `layer_<last>`, with a ReLU behind all but the last; adds their tensors."""
    nodes = []
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        tensors |= {f"weight_{k}": weight, f"bias_{k}": bias}
        nodes.append(helper.make_node("Gemm", [f"layer_{k}_in", f"weight_{k}", f"bias_{k}"], [f"layer_{k}"],
                                      f"linear_{k}", transB=1))
        if k < len(weights) - 1:
            nodes.append(helper.make_node("Relu", [f"layer_{k}"], [f"layer_{k + 1}_in"], f"relu_{k}"))
    return nodes


def serialised(nodes: Sequence[onnx.NodeProto], inputs: tuple[str, int], outputs: tuple[str, int],
               tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str], dtype: type[np.floating]) -> bytes:
    """The file of a graph.

    Args:
        inputs, outputs: name and width; float32 (batch, width).
        tensors: stored in `dtype`.
        metadata: stored in the file's metadata_props.
    """
    graph = helper.make_graph(
        nodes, "assay",
        [helper.make_tensor_value_info(inputs[0], TensorProto.FLOAT, ["batch", inputs[1]])],
        [helper.make_tensor_value_info(outputs[0], TensorProto.FLOAT, ["batch", outputs[1]])],
        [numpy_helper.from_array(np.ascontiguousarray(array, dtype=dtype), name)
         for name, array in tensors.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
                              producer_name="assay")
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def require_same_weights(content: bytes, network: ReluNetwork) -> None:
    """Reads the file back as the checker reads it. Raises RefusedError unless all weights are bit-identical."""
    chain, layers = read_chain(content), len(network.weights)
    first = next((k for k in range(len(chain.weights) - layers + 1)
                  if chain.weights[k].shape == network.weights[0].shape and all(
                      np.array_equal(a, b.astype(np.float64)) for a, b in zip(
                          (*chain.weights[k : k + layers], *chain.biases[k : k + layers]),
                          (*network.weights, *network.biases), strict=True))), None)
    if first is None:
        raise RefusedError("weights in the file must be the verified ones, they differ")
