"""ONNX files of small dense networks, and a runtime of their own to replay witnesses with."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper


def dense_model(weights: Sequence[Any], biases: Sequence[Any], kind: str = "Relu", dtype: type = np.float32,
                batch: int | str = 1, opset: int = 17, ir: int = 8) -> ModelProto:
    """x -> Gemm, activation, ..., Gemm -> y."""
    nodes, stored, here = [], [], "x"
    arrays = [(np.array(w, dtype=dtype), np.array(b, dtype=dtype)) for w, b in zip(weights, biases, strict=True)]
    for k, (weight, bias) in enumerate(arrays):
        stored += [numpy_helper.from_array(weight, f"w{k}"), numpy_helper.from_array(bias, f"b{k}")]
        last = k == len(arrays) - 1
        nodes.append(helper.make_node("Gemm", [here, f"w{k}", f"b{k}"], ["y" if last else f"z{k}"], transB=1))
        if not last:
            here = f"a{k}"
            nodes.append(helper.make_node(kind, [f"z{k}"], [here]))
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    sides = [helper.make_tensor_value_info(name, number, [batch, size])
             for name, size in (("x", arrays[0][0].shape[1]), ("y", len(arrays[-1][1])))]
    graph = helper.make_graph(nodes, "dense", sides[:1], sides[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def dense_file(path: Path, weights: Sequence[Any], biases: Sequence[Any], **options: Any) -> Path:
    """The same as a file."""
    path.write_bytes(dense_model(weights, biases, **options).SerializeToString())
    return path


def run_file(model: Path, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The outputs (o,) of onnxruntime, unoptimised, at one input (n,) in the file's type."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    number = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}[entry.type]
    fed = x.astype(number)
    assert (fed.astype(np.float64) == x).all()  # a witness consists of numbers that the file takes
    shape = [size if isinstance(size, int) else 1 for size in entry.shape]
    return np.asarray(session.run(None, {entry.name: fed.reshape(shape)})[0], dtype=np.float64).ravel()


def replayed(model: Path, witness: dict[str, Any]) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(inputs, outputs) of each point as read from JSON, after a run that gave exactly the stated outputs."""
    found = []
    for point in json.loads(json.dumps(witness))["points"]:
        x, y = (np.array(list(point[side].values())) for side in ("inputs", "outputs"))
        assert run_file(model, x).tolist() == y.tolist()
        found.append((x, y))
    return found


def undecided_file(path: Path) -> Path:
    """Eight inputs in [-1, 1], 3 x 40 neurons: whether y0 <= 1.5 is not decided within a few seconds."""
    rng, sizes = np.random.default_rng(0), (8, 40, 40, 40, 1)
    weights = [rng.normal(size=(after, before)) / before**0.5 for before, after in pairwise(sizes)]
    return dense_file(path, weights, [rng.normal(size=size) * 0.1 for size in sizes[1:]])


def spike_file(path: Path) -> Path:
    """y = 1 at x = 0.25, falling to 0 within 1e-7 on both sides: sampling misses it."""
    slope = 1e7  # it and a quarter of it are float32's
    return dense_file(path, [[[slope]] * 3, [[1, -2, 1]]], [[1 - slope / 4, -slope / 4, -1 - slope / 4], [0]])
