"""A policy as an ONNX file: raw observations in, raw targets out, float64 between two Casts.

The graph is the policy's chain (policy_chain.py), layer by layer: what the checker reads is what was proved.

Symbols: n signals, m controls; INPUT float32 (batch, n) raw -> OUTPUT float32 (batch, m) raw.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.export.onnx_model import IR_VERSION, OPSET

INPUT, OUTPUT = "observation", "targets"


def chain_onnx(weights: Sequence[NDArray[np.float64]], biases: Sequence[NDArray[np.float64]],
               metadata: Mapping[str, str]) -> bytes:
    """Serialises a chain of ReLU layers.

    Args:
        weights: (out, in) each; biases: (out,) each; ReLUs stand behind all but the last.
        metadata: stored in the file's metadata_props.
    """
    tensors: dict[str, NDArray[np.float64]] = {}
    last = len(weights) - 1
    nodes = [helper.make_node("Cast", [INPUT], ["layer_0_in"], "widen", to=TensorProto.DOUBLE)]
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        tensors |= {f"weight_{k}": weight, f"bias_{k}": bias}
        nodes.append(helper.make_node("Gemm", [f"layer_{k}_in", f"weight_{k}", f"bias_{k}"], [f"layer_{k}"],
                                      f"linear_{k}", transB=1))
        if k < last:
            nodes.append(helper.make_node("Relu", [f"layer_{k}"], [f"layer_{k + 1}_in"], f"relu_{k}"))
    nodes.append(helper.make_node("Cast", [f"layer_{last}"], [OUTPUT], "narrow", to=TensorProto.FLOAT))
    graph = helper.make_graph(
        nodes, "assay", [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", weights[0].shape[1]])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", len(biases[-1])])],
        [numpy_helper.from_array(np.ascontiguousarray(array, dtype=np.float64), name)
         for name, array in tensors.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
                              producer_name="assay")
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()
