"""scikit-learn's models as skl2onnx exports them: read, proved, certified; refused where they are something else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from feature_store.errors import InputError
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain, read_chain
from models.verification.decide import decide
from models.verification.network.graph_tensors import GraphTensors
from models.verification.network.onnx_reader import read_onnx
from models.verification.proof_file import check_proof

pytestmark = pytest.mark.filterwarnings("ignore")  # of scikit-learn: a few iterations are enough here


def mlp(**settings: Any) -> MLPRegressor:
    return MLPRegressor(hidden_layer_sizes=(8, 8), max_iter=30, random_state=0, **settings)


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": mlp, "standard, mlp": lambda: make_pipeline(StandardScaler(), mlp()),
    "min-max, mlp": lambda: make_pipeline(MinMaxScaler(), mlp()), "linear": LinearRegression, "ridge": Ridge,
    "max-abs, mlp": lambda: make_pipeline(MaxAbsScaler(), mlp()),
    "robust, linear": lambda: make_pipeline(RobustScaler(), LinearRegression()),
    "standard without a mean, linear": lambda: make_pipeline(StandardScaler(with_mean=False), LinearRegression()),
}
SPECIFICATION = """
features: [a, b, c]
outputs: [y]
box: {a: [0.25, 1], b: [0.25, 1], c: [0.25, 1]}
properties:
  - range: {output: y, minimum: -20, maximum: 20}
"""


def rows(count: int = 200) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).uniform(0.25, 1.0, (count, 3)).astype(np.float32)


def exported(name: str) -> tuple[Any, bytes]:
    """The model, trained, and its file."""
    from skl2onnx import to_onnx

    x = rows()
    model = MODELS[name]().fit(x, 3 * x[:, 0] - 2 * x[:, 1] + x[:, 2] ** 2)
    return model, to_onnx(model, x[:1]).SerializeToString()


def through(chain: Chain, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    value = x.astype(np.float64)
    for weight, bias, relu in zip(chain.weights, chain.biases, (*chain.relus, False), strict=True):
        value = value @ weight.T + bias
        value = np.maximum(value, 0) if relu else value
    return value


@pytest.mark.parametrize("name", MODELS)
def test_both_readers_compute_what_scikit_learn_computes(name: str) -> None:
    model, file = exported(name)
    x, expected = rows(50), model.predict(rows(50)).reshape(-1, 1)
    graph = GraphTensors(read_onnx(file).graph)
    np.testing.assert_allclose(graph(graph.tensor(x.astype(np.float64))).numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(through(read_chain(file), x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_property_is_proved_with_a_certificate_that_the_checker_accepts(tmp_path: Path, name: str) -> None:
    model, specification, proof = (tmp_path / one for one in ("model.onnx", "spec.yaml", "proof.npz"))
    model.write_bytes(exported(name)[1])
    specification.write_text(SPECIFICATION)
    found = decide(model, specification, certificate=proof)
    assert found.verdict == "PROVED"
    assert check_proof(proof, model, specification).accepted
    specification.write_text(SPECIFICATION.replace("maximum: 20", "maximum: -19"))
    assert decide(model, specification).verdict == "REFUTED"


def changed(file: bytes, change: Callable[[onnx.ModelProto], None]) -> bytes:
    model = onnx.load_model_from_string(file)
    change(model)
    return bytes(model.SerializeToString())


def without(name: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = model.graph.node[0]
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
    return change


def transformed(model: onnx.ModelProto) -> None:
    for attribute in model.graph.node[-1].attribute:
        if attribute.name == "post_transform":
            model.graph.node[-1].attribute.remove(attribute)
    model.graph.node[-1].attribute.append(helper.make_attribute("post_transform", "LOGISTIC"))


def short(model: onnx.ModelProto) -> None:
    for attribute in model.graph.node[0].attribute:
        del attribute.floats[1:2]


def another_opset(model: onnx.ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("", 13))


@pytest.mark.parametrize(("name", "change", "message"), [
    ("robust, linear", without("scale"), "attributes must be offset and scale, got offset"),
    ("robust, linear", short, "offset and scale must fit"),
    ("linear", transformed, "LinearRegressor must be of one row, without a transformation after it"),
    ("linear", another_opset, "file must import ONNX's operators in one version"),
])
def test_what_means_something_else_is_refused(name: str, change: Callable[[onnx.ModelProto], None],
                                              message: str) -> None:
    file = changed(exported(name)[1], change)
    with pytest.raises(InputError, match=message):
        read_onnx(file)
    if change is not another_opset:
        with pytest.raises(Rejected, match="of ONNX-ML a network that can be checked has"):
            read_chain(file)


def test_the_same_opset_may_be_imported_twice() -> None:
    def twice(model: onnx.ModelProto) -> None:
        model.opset_import.append(model.opset_import[0])

    file = exported("mlp")[1]
    assert read_onnx(changed(file, twice)).opset == read_onnx(file).opset


def test_a_cast_that_changes_the_type_is_still_refused_inside_of_a_network() -> None:
    def narrow(model: onnx.ModelProto) -> None:
        (cast,) = [node for node in model.graph.node if node.op_type == "Cast"][:1]
        cast.attribute[0].i = onnx.TensorProto.FLOAT16

    with pytest.raises(InputError, match="or to the type that it has"):
        read_onnx(changed(exported("mlp")[1], narrow))
