"""A policy as an ONNX file: raw observations in, raw targets out, float64 between two Casts.

The graph is the policy's chain (policy_chain.py), layer by layer: what the checker reads is what was proved.

Symbols: n signals, m controls; INPUT float32 (batch, n) raw -> OUTPUT float32 (batch, m) raw.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from models.export.onnx_model import linear_layers, serialised

INPUT, OUTPUT = "observation", "targets"


def chain_onnx(weights: Sequence[NDArray[np.float64]], biases: Sequence[NDArray[np.float64]],
               metadata: Mapping[str, str]) -> bytes:
    """Serialises a chain of ReLU layers.

    Args:
        weights: (out, in) each; biases: (out,) each; ReLUs stand behind all but the last.
        metadata: stored in the file's metadata_props.
    """
    tensors: dict[str, NDArray[np.float64]] = {}
    nodes = [helper.make_node("Cast", [INPUT], ["layer_0_in"], "widen", to=TensorProto.DOUBLE),
             *linear_layers(weights, biases, tensors),
             helper.make_node("Cast", [f"layer_{len(weights) - 1}"], [OUTPUT], "narrow", to=TensorProto.FLOAT)]
    return serialised(nodes, (INPUT, weights[0].shape[1]), (OUTPUT, len(biases[-1])), tensors, metadata, np.float64)
