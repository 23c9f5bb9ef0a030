"""Puts a policy and what happens around it together as one chain of affine maps and ReLUs, which can be certified.

A graph with skips is a chain in which what is needed later is carried along, through a neuron of its own in every
layer. A ReLU leaves such a value as it is where it is never below zero; so every value that is carried is one that
cannot be (a physical amount, the output of a ReLU, or an input that is counted from its least value). Nothing is
multiplied out: a map that no ReLU follows is a layer of its own, so that the chain holds the policy's own weights.

Symbols: values are vectors with names; a layer's blocks say how each is made of those before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.checker.relaxations import Kind
from models.verification.network.graph import FloatArray

# How a value is made: of other values, each by a matrix, and a constant.
Block = tuple[Mapping[str, FloatArray], FloatArray]
OPSET, IR_VERSION = 17, 8
# What the rounding of a constant of a chain costs at most, in units of its size: some twenty roundings.
ROUNDED = 64 * 2.0**-53


@dataclass
class ChainBuilder:
    """sizes: of the values by name, in the order in which they stand; begins with the chain's inputs."""

    sizes: dict[str, int]
    weights: list[FloatArray] = field(default_factory=list)
    biases: list[FloatArray] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)

    def layer(self, blocks: Mapping[str, Block], kept: Iterable[str] = (), relu: bool = True) -> None:
        """Adds a layer of the blocks, and of the values that are kept, which are >= 0 where a ReLU follows."""
        made = {**{name: ({name: np.eye(self.sizes[name])}, np.zeros(self.sizes[name])) for name in kept}, **blocks}
        columns = np.cumsum([0, *self.sizes.values()])
        places = dict(zip(self.sizes, (slice(a, b) for a, b in pairwise(columns)), strict=True))
        rows = []
        for of, bias in made.values():
            row = np.zeros((len(bias), columns[-1]))
            for name, matrix in of.items():
                row[:, places[name]] = matrix
            rows.append(row)
        self.weights.append(np.vstack(rows))
        self.biases.append(np.concatenate([bias for _, bias in made.values()]))
        self.kinds.append("relu" if relu else "identity")
        self.sizes = {name: len(bias) for name, (_, bias) in made.items()}

    def through(self, policy: Chain, seen: str, target: str, kept: Sequence[str]) -> None:
        """Carries the value `seen` through the policy, to the value `target`.

        Raises InputError for a policy that divides: the chain would hold rounded reciprocals, not its divisors.
        """
        if not policy.exact:
            raise InputError("policy must multiply by what its file holds, got a Div whose reciprocal is rounded: "
                             "multiply by a constant before the export")
        here = seen
        for weight, bias, follows in zip(policy.weights, policy.biases, (*policy.relus, False), strict=True):
            self.layer({target: ({here: weight}, bias)}, kept, follows)
            here = target

    def chain(self) -> Chain:
        """The chain; its last layer has no ReLU."""
        return Chain(tuple(self.weights), tuple(self.biases), tuple(self.kinds[:-1]))


def chain_values(chain: Chain, x: FloatArray) -> FloatArray:
    """y (m, o) at x (m, n), evaluated in the type that the chain is executed in."""
    values = x.astype(chain.fed).astype(chain.executed)
    for weight, bias, follows in zip(chain.weights, chain.biases, (*chain.relus, False), strict=True):
        values = values @ weight.astype(chain.executed).T + bias.astype(chain.executed)
        values = np.maximum(values, 0) if follows else values
    return np.asarray(values.astype(chain.fed), dtype=np.float64)


def chain_file(chain: Chain) -> bytes:
    """The chain as an ONNX file in float64, the same bytes for the same chain."""
    nodes, stored, here = [], [], "x"
    last = len(chain.weights) - 1
    for k, (weight, bias) in enumerate(zip(chain.weights, chain.biases, strict=True)):
        stored += [numpy_helper.from_array(np.ascontiguousarray(weight, dtype=np.float64), f"w{k}"),
                   numpy_helper.from_array(np.ascontiguousarray(bias, dtype=np.float64), f"b{k}")]
        nodes.append(helper.make_node("Gemm", [here, f"w{k}", f"b{k}"], ["y" if k == last else f"z{k}"], transB=1))
        here = f"z{k}"
        if k < last and chain.relus[k]:
            nodes.append(helper.make_node("Relu", [here], [f"a{k}"]))
            here = f"a{k}"
    sides = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [1, size])
             for name, size in (("x", chain.weights[0].shape[1]), ("y", len(chain.biases[-1])))]
    graph = helper.make_graph(nodes, "closed_loop", sides[:1], sides[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)
