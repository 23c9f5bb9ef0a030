"""The pool's encoder as an ONNX file: measured runs of a workload in, its embedding out.

What pool_encoder.py computes, node by node. The posterior of the hierarchical model is taken run by
run (recursive least squares: one division a run instead of a solver, which ONNX lacks); the result does not depend on
the order of the runs beyond rounding, nor on places without a run.

    configuration float32 (K, n)  raw units, one measured run a row; any configuration of the pool's table
    target        float32 (K,)    above 0, what was measured
    there         float32 (K,)    1 where there is a run, 0 in places that are not used
    ->
    embedding     float32 (d,)    the model's embedding inputs, in order
    similarity    float32 (1,)    to the nearest workload of the pool, models/adaptation/pool/similarity.py
    unknown       float32 (1,)    largest squared distance of a run's configuration to the table's nearest, in steps of
                                  its columns (the smallest between two of their values); 0 if all are known
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import NodeProto, TensorProto, helper, numpy_helper

from models.adaptation.closed_form.neighbours import FLOOR
from models.adaptation.learner import FloatArray
from models.adaptation.pool.pool_encoder import PoolEncoder
from models.export.onnx_model import IR_VERSION, OPSET

TINY = 1e-12


def build_encoder(encoder: PoolEncoder, table: FloatArray, runs: int, size: int, reach: float,
                  metadata: Mapping[str, str]) -> bytes:
    """Serialises the encoder.

    Args:
        table: (C, n) the pool's configurations in raw units, in the encoder's order.
        runs: K, the most runs; size: d, the model's embedding inputs, at least the encoder's own.
        reach: of the similarity.
        metadata: stored in the file's metadata_props.
    """
    g = _Graph()
    step = np.array([_smallest_step(column) for column in table.T])
    gap = g.op("Div", g.op("Sub", g.op("Unsqueeze", "configuration", g.integers([1])), g.number(table)), g.number(step))
    distance = g.sum(g.op("Mul", gap, gap), 2)  # (K, C)
    at = g.op("ArgMin", distance, axis=1, keepdims=0)
    known = g.op("ReduceMin", distance, axes=[1], keepdims=0)
    g.op("ReduceMax", g.op("Mul", known, "there"), axes=[0], keepdims=1, out="unknown")
    # places without a run hold any number: their logarithm must not reach the rest
    y = g.op("Log", g.op("Where", g.op("Greater", "there", g.number(0.0)), "target", g.number(1.0)))
    curve = g.op("Mul", g.op("Add", _hierarchical(g, encoder, at, y, runs), _nearest(g, encoder, at, y)),
                 g.number(0.5))
    pad = ((0, 0), (0, size - encoder.size))
    centred = g.op("Unsqueeze", g.op("Sub", curve, g.number(encoder.centre)), g.integers([0]))
    embedding = g.op("MatMul", centred, g.number(np.pad(encoder.encode, pad)))  # (1, d)
    g.op("Squeeze", embedding, g.integers([0]), out="embedding")
    _similarity(g, embedding, np.pad(encoder.pool, pad), reach)
    n = table.shape[1]
    model = helper.make_model(
        g.graph({"configuration": [runs, n], "target": [runs], "there": [runs]},
                {"embedding": [size], "similarity": [1], "unknown": [1]}),
        opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="assay")
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _smallest_step(column: FloatArray) -> float:
    steps = np.diff(np.unique(column))
    return float(steps.min()) if len(steps) else 1.0


def _hierarchical(g: "_Graph", encoder: PoolEncoder, at: str, y: str, runs: int) -> str:
    """(C,): prior mean, conditioned on one run after the other."""
    mean, covariance = g.number(encoder.prior[:, None]), g.number(encoder.covariance)
    for k in range(runs):
        place = g.integers([k])
        own, there = g.op("Gather", at, place, axis=0), g.op("Gather", "there", place, axis=0)
        column = g.op("Gather", covariance, own, axis=1)  # (C, 1)
        variance = g.op("Add", g.op("Gather", column, own, axis=0), g.number(encoder.noise[0]))
        gain = g.op("Mul", g.op("Div", column, variance), there)
        residual = g.op("Sub", g.op("Gather", y, place, axis=0), g.op("Gather", mean, own, axis=0))
        mean = g.op("Add", mean, g.op("Mul", gain, residual))
        covariance = g.op("Sub", covariance, g.op("MatMul", gain, g.op("Transpose", column, perm=[1, 0])))
    return g.op("Squeeze", mean, g.integers([1]))


def _nearest(g: "_Graph", encoder: PoolEncoder, at: str, y: str) -> str:
    """(C,): the pool's curves, shifted to the support's level, weighted by their likeness under the support."""
    curves, (ratio_width, level_width) = g.number(encoder.curves), encoder.bandwidths
    count = g.op("Max", g.op("ReduceSum", "there", keepdims=1), g.number([1.0]))
    base = g.op("Gather", curves, at, axis=1)  # (W, K)
    gap = g.op("Mul", g.op("Sub", base, y), "there")
    level = g.op("Div", g.sum(gap, 1, keep=True), count)  # (W, 1)
    ratio = g.op("Mul", g.op("Sub", gap, level), "there")
    apart = g.sum(g.op("Mul", ratio, ratio), 1)
    off = g.op("Squeeze", g.op("Mul", level, level), g.integers([1]))
    squared = g.op("Add", g.op("Div", apart, g.number(ratio_width**2)), g.op("Div", off, g.number(level_width**2)))
    least = g.op("ReduceMin", squared, axes=[0], keepdims=1)
    weight = g.op("Add", g.op("Exp", g.op("Mul", g.op("Sub", squared, least), g.number(-0.5))), g.number(FLOOR))
    weight = g.op("Div", weight, g.op("ReduceSum", weight, keepdims=1))  # (W,)
    own = g.op("Div", g.op("ReduceSum", g.op("Mul", y, "there"), keepdims=1), count)
    level_of_base = g.op("Div", g.sum(g.op("Mul", base, "there"), 1), count)
    shift = g.op("Sub", own, g.op("ReduceSum", g.op("Mul", weight, level_of_base), keepdims=1))
    return g.op("Add", g.op("MatMul", weight, curves), shift)


def _similarity(g: "_Graph", embedding: str, pool: FloatArray, reach: float) -> None:
    gap = g.op("Sub", embedding, g.number(pool))
    distance = g.op("Div", g.op("Sqrt", g.sum(g.op("Mul", gap, gap), 1)), g.number(reach))  # (W,)
    length = g.op("Mul", g.op("Sqrt", g.sum(g.op("Mul", embedding, embedding), 1)),
                  g.number(np.linalg.norm(pool, axis=1)))
    product = g.sum(g.op("Mul", embedding, g.number(pool)), 1)
    cosine = g.op("Div", product, g.op("Max", length, g.number(TINY)))
    each = g.op("Mul", g.op("Add", g.op("Sub", g.number(1.0), distance), cosine), g.number(0.5))
    g.op("ReduceMax", each, axes=[0], keepdims=1, out="similarity")


class _Graph:
    """Nodes and constants of a graph under construction; every method returns the name of what it made."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def op(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """A node with one output."""
        name = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], f"node_{len(self.nodes)}", **attributes))
        return name

    def sum(self, name: str, axis: int, keep: bool = False) -> str:
        """Over one axis."""
        return self.op("ReduceSum", name, self.integers([axis]), keepdims=int(keep))

    def number(self, value: ArrayLike) -> str:
        """A float32 constant."""
        return self._constant(np.asarray(value, dtype=np.float32))

    def integers(self, value: ArrayLike) -> str:
        """An int64 constant."""
        return self._constant(np.asarray(value, dtype=np.int64))

    def graph(self, inputs: Mapping[str, list[int]], outputs: Mapping[str, list[int]]) -> onnx.GraphProto:
        """The whole graph, of float32 inputs and outputs of these shapes."""
        taken, given = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in side.items()]
                        for side in (inputs, outputs))
        return helper.make_graph(self.nodes, "assay-encoder", taken, given, self.constants)

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name
