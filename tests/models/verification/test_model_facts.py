"""What a contract repeats of an ONNX file is read of the file alone, and only where it can mean one thing."""

import onnx
import pytest
from onnx import TensorProto, helper

from feature_store.errors import InputError
from models.verification.model_facts import model_facts


def relu(inputs: tuple[str, ...] = ("rows",), outputs: tuple[str, ...] = ("answer",), opsets: tuple[int, ...] = (17,),
         weight: str = "") -> bytes:
    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1])

    weights = [helper.make_tensor(weight, TensorProto.FLOAT, [1], [0.0])] if weight else []
    graph = helper.make_graph([helper.make_node("Relu", ["rows"], ["answer"])], "g", [value(one) for one in inputs],
                              [value(one) for one in outputs], weights)
    imports = [helper.make_opsetid("ai.onnx.ml", 3), *(helper.make_opsetid("", one) for one in opsets)]
    content: bytes = helper.make_model(graph, opset_imports=imports).SerializeToString()
    return content


def test_the_version_of_onnx_s_own_operators_and_both_names_are_read() -> None:
    facts = {"opset": 17, "input": "rows", "output": "answer"}
    assert model_facts(relu()) == facts
    assert model_facts(relu(inputs=("weight", "rows"), weight="weight")) == facts, "old files list weights as inputs"


@pytest.mark.parametrize(("content", "said"), [
    (relu(inputs=("rows", "more")), r"one input, got \['rows', 'more'\]"), (relu(inputs=()), "one input, got"),
    (relu(outputs=("answer", "rows")), "one output, got"), (relu(opsets=(17, 18)), r"one opset, got \[17, 18\]"),
    (relu(opsets=()), "one opset, got"), (b"no model", "must be a valid ONNX file")])
def test_a_file_of_which_several_things_could_be_said_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        model_facts(content)
