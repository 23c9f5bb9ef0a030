"""scikit-learn's models as skl2onnx exports them: read, proved, certified; refused where they are something else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from feature_store.errors import InputError
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain, read_chain
from models.verification.decide import decide
from models.verification.network.graph_tensors import GraphTensors
from models.verification.network.onnx_reader import read_onnx
from models.verification.network.runtime_agreement import chain_stages, stage_values
from models.verification.proof_file import check_proof

pytestmark = pytest.mark.filterwarnings("ignore")  # of scikit-learn: a few iterations are enough here


def mlp(**settings: Any) -> MLPRegressor:
    return MLPRegressor(hidden_layer_sizes=(8, 8), max_iter=30, random_state=0, **settings)


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": mlp, "standard, mlp": lambda: make_pipeline(StandardScaler(), mlp()),
    "min-max, mlp": lambda: make_pipeline(MinMaxScaler(), mlp()), "linear": LinearRegression, "ridge": Ridge,
    "max-abs, mlp": lambda: make_pipeline(MaxAbsScaler(), mlp()),
    "robust, linear": lambda: make_pipeline(RobustScaler(), LinearRegression()),
    "tanh": lambda: mlp(activation="tanh"),
    "standard, logistic": lambda: make_pipeline(StandardScaler(), mlp(activation="logistic")),
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


def exported(name: str, dtype: type = np.float32) -> tuple[Any, bytes]:
    """The model, trained on numbers of this type, and its file."""
    from skl2onnx import to_onnx

    x = rows().astype(dtype)
    model = MODELS[name]().fit(x, 3 * x[:, 0] - 2 * x[:, 1] + x[:, 2] ** 2)
    return model, to_onnx(model, x[:1]).SerializeToString()


def through(chain: Chain, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return stage_values(chain_stages(chain.weights, chain.biases, chain.kinds), x.astype(np.float64))


@pytest.mark.parametrize("name", MODELS)
def test_both_readers_compute_what_scikit_learn_computes(name: str) -> None:
    model, file = exported(name)
    x, expected = rows(50), model.predict(rows(50)).reshape(-1, 1)
    graph = GraphTensors(read_onnx(file).graph)
    np.testing.assert_allclose(graph(graph.tensor(x.astype(np.float64))).numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(through(read_chain(file, curves=True), x), expected, rtol=1e-4, atol=1e-5)


# Of float64 a StandardScaler is exported as Sub and Div.
@pytest.mark.parametrize(("name", "dtype"), [*((name, np.float32) for name in MODELS), ("standard, mlp", np.float64)])
def test_a_property_is_proved_with_a_certificate_that_the_checker_accepts(tmp_path: Path, name: str,
                                                                          dtype: type) -> None:
    model, specification, proof = (tmp_path / one for one in ("model.onnx", "spec.yaml", "proof.npz"))
    model.write_bytes(exported(name, dtype)[1])
    specification.write_text(SPECIFICATION)
    found = decide(model, specification, certificate=proof)
    assert found.verdict == "PROVED"
    assert check_proof(proof, model, specification).accepted
    specification.write_text(SPECIFICATION.replace("maximum: 20", "maximum: -19"))
    assert decide(model, specification).verdict == "REFUTED"


def test_a_network_behind_a_division_is_certified(tmp_path: Path) -> None:
    """As people standardise by hand: (x - mean) / deviation in front of the layers."""
    model, specification, proof = (tmp_path / one for one in ("model.onnx", "spec.yaml", "proof.npz"))
    rng = np.random.default_rng(0)
    stored = {"mean": rng.uniform(0, 1, 3), "deviation": rng.uniform(0.1, 0.9, 3), "weight": rng.normal(size=(3, 5)),
              "last": rng.normal(size=(5, 1))}
    nodes = [helper.make_node("Sub", ["x", "mean"], ["a"]), helper.make_node("Div", ["a", "deviation"], ["b"]),
             helper.make_node("MatMul", ["b", "weight"], ["c"]), helper.make_node("Relu", ["c"], ["d"]),
             helper.make_node("MatMul", ["d", "last"], ["y"])]
    sides = [[helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, size])]
             for name, size in (("x", 3), ("y", 1))]
    graph = helper.make_graph(nodes, "divided", *sides, [
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in stored.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    specification.write_text(SPECIFICATION)
    assert decide(model, specification, certificate=proof).verdict == "PROVED"
    assert check_proof(proof, model, specification).accepted


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


def test_another_operator_of_onnx_ml_is_refused_by_its_name() -> None:
    def choice(model: onnx.ModelProto) -> None:
        places = onnx.numpy_helper.from_array(np.array([0, 1, 2]), "places")
        model.graph.initializer.append(places)
        node = helper.make_node("ArrayFeatureExtractor", [model.graph.input[0].name, "places"], ["chosen"],
                                domain="ai.onnx.ml")
        model.graph.node[0].input[0] = "chosen"
        model.graph.node.insert(0, node)

    with pytest.raises(InputError, match="of ONNX-ML must be one of LinearRegressor, Scaler, got ArrayFeatureExtr"):
        read_onnx(changed(exported("linear")[1], choice))


@pytest.mark.parametrize("behind", [LinearRegression, lambda: RandomForestRegressor(2)], ids=["linear", "forest"])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_a_normalizer_is_refused_with_what_to_do_and_the_steps_behind_it_are_decided(
    tmp_path: Path, norm: str, behind: Callable[[], Any],
) -> None:
    from skl2onnx import to_onnx

    x = rows()
    pipeline = make_pipeline(Normalizer(norm), behind()).fit(x, x[:, 0])
    model, specification = tmp_path / "model.onnx", tmp_path / "spec.yaml"
    model.write_bytes(to_onnx(pipeline, x[:1]).SerializeToString())
    specification.write_text(SPECIFICATION)
    with pytest.raises(InputError, match="division by a norm is not read: export the steps behind it"):
        decide(model, specification)
    model.write_bytes(to_onnx(pipeline[1:], x[:1]).SerializeToString())
    specification.write_text(SPECIFICATION.replace("[0.25, 1]", "[0, 1]"))
    assert decide(model, specification).verdict == "PROVED"


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic"])
def test_a_classifier_is_certified_of_its_probability_once_the_file_has_that_output_alone(
    tmp_path: Path, activation: str,
) -> None:
    from skl2onnx import to_onnx

    x = rows()
    classifier = MLPClassifier((8,), activation=activation, max_iter=30, random_state=0).fit(x, x[:, 0] > x[:, 1])
    whole, model, specification, proof = (tmp_path / one for one in ("w.onnx", "m.onnx", "spec.yaml", "proof.npz"))
    whole.write_bytes(to_onnx(classifier, x[:1], options={"zipmap": False}).SerializeToString())
    with pytest.raises(InputError, match=r"one output, got 2: label, probabilities; onnx\.utils\.extract_model"):
        read_onnx(whole)
    onnx.utils.extract_model(str(whole), str(model), ["X"], ["out_activations_result"])
    chance = through(read_chain(model.read_bytes(), curves=True), x)[:, 0]
    np.testing.assert_allclose(chance, classifier.predict_proba(x)[:, 1], atol=1e-5)
    low, high = chance.min() - 0.1, chance.max() + 0.1
    specification.write_text(SPECIFICATION.replace("-20", str(low)).replace("20", str(high)))
    assert decide(model, specification, certificate=proof).verdict == "PROVED"
    assert check_proof(proof, model, specification).accepted


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
