"""What a model computes has one digest, whatever else its file holds; another function has another one."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from serving.model_function import function_digest
from tests.serving.conftest import onnx_bytes

Change = Callable[[onnx.ModelProto], object]


def changed(change: Change) -> bytes:
    model = onnx.load_model_from_string(onnx_bytes())
    change(model)
    return bytes(model.SerializeToString())


def rename(model: onnx.ModelProto) -> None:
    names = {value.name for value in (*model.graph.initializer, *model.graph.input, *model.graph.output)}
    names |= {name for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        node.input[:] = [f"n_{name}" for name in node.input]
        node.output[:] = [f"n_{name}" for name in node.output]
    for value in (*model.graph.initializer, *model.graph.input, *model.graph.output):
        value.name = f"n_{value.name}"


def as_constant(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    del model.graph.initializer[0]


def identity(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[0] = "through"
    model.graph.node.insert(1, helper.make_node("Identity", ["shifted"], ["through"]))


def unused(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "nobody reads it"))


SAME: list[Change] = [
    lambda model: setattr(model, "doc_string", "x"), lambda model: setattr(model.graph, "name", "x"),
    lambda model: model.metadata_props.add(key="run", value="7"), rename, as_constant, identity, unused,
    lambda model: model.graph.initializer.sort(key=lambda tensor: tensor.name)]


def weight(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def apply(model: onnx.ModelProto) -> None:
        (tensor,) = (one for one in model.graph.initializer if one.name == name)
        tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), name))

    return apply


def sum_for_product(model: onnx.ModelProto) -> None:
    model.graph.node[1].op_type = "Add"


def other_way_round(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[:] = list(model.graph.node[0].input)[::-1]


OTHER: list[Change] = [
    weight("b1", lambda old: np.nextafter(old, np.float32(9))), weight("span", lambda old: old * np.float32(2)),
    weight("w2", lambda old: old.astype(np.float64)), sum_for_product, other_way_round,
    lambda model: model.graph.node.pop(4) and model.graph.node[4].input.__setitem__(0, "a1")]


@pytest.mark.parametrize("change", SAME)
def test_names_texts_and_what_nobody_reads_leave_no_trace(change: Change) -> None:
    assert changed(change) != onnx_bytes()
    assert function_digest(changed(change)) == function_digest(onnx_bytes())


@pytest.mark.parametrize("change", OTHER)
def test_another_function_has_another_digest(change: Change) -> None:
    assert function_digest(changed(change)) != function_digest(onnx_bytes())


def test_attributes_and_the_order_of_outputs_count() -> None:
    def concat(axis: int, first: str, second: str) -> bytes:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["x"], ["b"]),
             helper.make_node("Concat", ["a", "b"], ["c"], axis=axis)], "g", [value("x", 1, [2, 2])],
            [value(first, 1, None), value(second, 1, None)])
        return bytes(helper.make_model(graph).SerializeToString())

    digests = {function_digest(concat(*which)) for which in ((0, "a", "c"), (1, "a", "c"), (0, "c", "a"),
                                                             (0, "b", "c"))}
    assert len(digests) == 4
