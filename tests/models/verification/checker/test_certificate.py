"""Mutants of valid proofs: of the model, the specification, the proof's document and its leaves.

Two attackers. One changes a file: the digests no longer fit, so every mutant is refused. The other makes the
digests fit again: a mutant is refused whenever brute force finds the claim to be false of the mutated model,
and whenever the graph means something else to a runtime than to the checker.
"""

import copy
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.verification.tampered_proof import Proof, changed
from feature_store.errors import InputError
from models.verification import proof_file
from models.verification.checker.chain import read_chain
from models.verification.checker.check import leaf_bounds
from models.verification.network.runtime_agreement import chain_stages, stage_values
from models.verification.proof_file import check_proof
from tests.models.verification.certified import (
    SCALING,
    evaluate_graph,
    monotone,
    proofs,
    prove,
    task_with,
    violation,
)
from tests.models.verification.networks import monotone_network

# float32 execution of a small network at its own scale
FLOAT32_PARITY = 1e-5


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Proof]:
    return proofs(tmp_path_factory.mktemp("proofs"))


@pytest.fixture(params=["single", "many"])
def proof(request: pytest.FixtureRequest, valid: dict[str, Proof]) -> Proof:
    return valid[request.param]


def tensor(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(item for item in model.graph.initializer if item.name == name)


def node_of(model: onnx.ModelProto, kind: str, number: int = 0) -> onnx.NodeProto:
    """The node of this kind, counted from 0."""
    return [node for node in model.graph.node if node.op_type == kind][number]


def set_tensor(model: onnx.ModelProto, name: str, array: Any, dtype: Any = None) -> None:
    """dtype None: the tensor's own."""
    dtype = dtype or numpy_helper.to_array(tensor(model, name)).dtype
    tensor(model, name).CopyFrom(numpy_helper.from_array(np.asarray(array, dtype=dtype), name))


# --- the attacker who leaves the digests as they are -------------------------------------------------------


def test_a_valid_certificate_is_accepted_and_reports_what_it_found(proof: Proof, tmp_path: Path) -> None:
    result = proof.check(tmp_path)
    assert result.accepted and result.reason == ""
    assert result.leaves == proof.leaves and result.statement == proof.document["statement"]
    assert result.execution == proof.document["execution"]
    assert violation(proof) <= 0
    assert proof.rehashed().check(tmp_path).accepted


def test_many_leaves_are_many(valid: dict[str, Proof]) -> None:
    assert valid["single"].leaves == 1
    assert valid["many"].leaves > 20


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """One byte changed, cut off, added or doubled."""
    place = int(rng.integers(len(data)))
    kind = rng.integers(5)
    if kind <= 1:
        return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]
    if kind == 2:
        return data[:place]
    if kind == 3:
        return data + bytes([int(rng.integers(256))])
    return data[:place] + data[place : place + 1] + data[place:]


def perturbed_model(proof: Proof, rng: np.random.Generator) -> bytes:
    """One stored number changed: a weight, a bias or a number of the scaling."""
    model = proof.graph
    chosen = model.graph.initializer[int(rng.integers(len(model.graph.initializer)))]
    array = numpy_helper.to_array(chosen).copy()
    flat = array.reshape(-1)
    place = int(rng.integers(flat.size))
    old = flat[place]
    changes: list[Callable[[], Any]] = [
        lambda: -old, lambda: np.nextafter(old, np.float32(np.inf)), lambda: old * 10.0 ** rng.uniform(-6, 6),
        lambda: old + rng.normal() * rng.choice([1e-3, 0.1, 1.0, 30.0]), lambda: 0.0, lambda: -3.0 * abs(old) - 1.0]
    while flat[place] == old:
        flat[place] = np.float32(changes[int(rng.integers(len(changes)))]())
    set_tensor(model, chosen.name, array)
    return model.SerializeToString()


def perturbed_tree(proof: Proof, rng: np.random.Generator) -> Proof:
    """One split moved or turned, one leaf dropped or doubled, or one node replaced."""
    dimension, value = proof.tree
    ends = np.flatnonzero(dimension < 0)
    kind = int(rng.integers(5)) if len(ends) else 4
    place = int(rng.integers(max(len(dimension), 1)))
    if kind == 0:
        value[place] += rng.normal() * rng.choice([1e-6, 0.1, 10.0])
    elif kind == 1:
        dimension[place] = rng.choice([d for d in range(-2, 5) if d != dimension[place]])
    elif kind == 2:
        leaf = int(rng.choice(ends))
        dimension, value = np.delete(dimension, leaf), np.delete(value, leaf)
    elif kind == 3:
        leaf = int(rng.choice(ends))
        dimension, value = np.insert(dimension, leaf, -1), np.insert(value, leaf, 0.0)
    else:
        dimension, value = np.array([-1], dtype=np.int16), np.array([float(rng.normal())])
    return proof.with_tree(dimension, value)


def perturbed_claim(proof: Proof, rng: np.random.Generator) -> Proof:
    """One thing that the claim says is changed: a wall, the tolerance, a direction, a feature, a name, a limit."""
    claim = proof.claim
    names, (output,) = claim["features"], claim["outputs"]
    place = str(rng.choice(names))
    low, high = claim["box"][place]
    width = high - low
    properties = claim["properties"]
    number = int(rng.integers(len(properties)))
    rule = properties[number]["monotone"]
    where = ("properties", number, "monotone")
    options: list[Callable[[], Any]] = [
        lambda: changed(claim, "box", place, 0, to=low - width * 10.0 ** rng.uniform(-9, 2)),
        lambda: changed(claim, "box", place, 1, to=high + width * 10.0 ** rng.uniform(-9, 2)),
        lambda: changed(claim, "box", place, 0, to=low + width * 0.25),
        lambda: changed(claim, "features", names.index(place), to="other"),
        lambda: changed(claim, "units", place, to="parsec"),
        lambda: changed(claim, "features", to=names[::-1]),
        lambda: changed(claim, "tolerance", output, to=claim["tolerance"][output] * 10.0 ** rng.uniform(-3, 3)),
        lambda: changed(claim, "rounding", output, to=claim["rounding"][output] * 10.0 ** rng.uniform(-6, 3)),
        lambda: changed(claim, *where, "direction",
                        to="decreasing" if rule["direction"] == "increasing" else "increasing"),
        lambda: changed(claim, *where, "features",
                        to=[str(rng.choice([name for name in names if name not in rule["features"]]))]),
        lambda: changed(claim, *where, "features", to=[*rule["features"], "unheard of"]),
        lambda: changed(claim, *where, "features", to=[]),
        lambda: changed(claim, "properties", to=[]),
        lambda: changed(claim, "properties", to=[*properties, monotone(str(rng.choice(names)), direction="decreasing"),
                                                 monotone(str(rng.choice(names)))]),
    ]
    return proof.claiming(options[int(rng.integers(len(options)))]())


def perturbed_document(proof: Proof, rng: np.random.Generator) -> Proof:
    """One field of the document left out or changed."""
    document = proof.document
    key = str(rng.choice(sorted(document)))
    if rng.random() < 0.3:
        return proof.saying({name: value for name, value in document.items() if name != key})
    value = document[key]
    if key == "parts":
        more = int(rng.integers(1, 5)) * int(rng.choice([-1, 1]))
        return proof.saying(changed(document, "parts", 0, "leaves", to=value[0]["leaves"] + more))
    choices = [value + "0", value[::-1], "", None, 5]
    return proof.saying(changed(document, key, to=choices[int(rng.integers(5))]))


KINDS = ("number", "tree", "claim", "model byte", "proof byte", "document", "claim byte")


def mutant(proof: Proof, rng: np.random.Generator, kinds: tuple[str, ...] = KINDS) -> tuple[str, Proof]:
    """One change of one file."""
    kind = str(rng.choice(kinds))
    match kind:
        case "model byte":
            return kind, replace(proof, model=flipped(proof.model, rng))
        case "proof byte":
            return kind, replace(proof, proof=flipped(proof.proof, rng))
        case "claim byte":
            return kind, replace(proof, specification=flipped(proof.specification, rng))
        case "number":
            return kind, replace(proof, model=perturbed_model(proof, rng))
        case "tree":
            return kind, perturbed_tree(proof, rng)
        case "claim":
            return kind, perturbed_claim(proof, rng)
        case _:
            return kind, perturbed_document(proof, rng)


def same_content(other: Proof, proof: Proof) -> bool:
    """Whether the files differ in what an archive keeps beside its content alone, its dates and flags."""
    if (other.model, other.specification) != (proof.model, proof.specification):
        return False
    try:
        return other.document == proof.document and all(
            np.array_equal(a, b) for one, two in zip(other.trees, proof.trees, strict=True)
            for a, b in zip(one, two, strict=True))
    except Exception:  # it cannot be read any more
        return False


def refuse_all(proof: Proof, folder: Path, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tried = 0
    while tried < count:
        kind, other = mutant(proof, rng)
        if other == proof or same_content(other, proof):
            continue
        tried += 1
        result = other.check(folder)
        assert not result.accepted and result.reason, (kind, tried)


def test_every_changed_file_is_refused(proof: Proof, tmp_path: Path) -> None:
    refuse_all(proof, tmp_path, count=150, seed=1)


def test_every_changed_file_is_refused_in_a_long_attack(proof: Proof, tmp_path: Path) -> None:
    refuse_all(proof, tmp_path, count=2500, seed=2)


def test_a_file_that_is_missing_is_said(proof: Proof, tmp_path: Path) -> None:
    paths = proof.write(tmp_path)
    for number in range(len(paths)):
        gone = [*paths[:number], tmp_path / "none", *paths[number + 1:]]
        if number == 0:
            result = check_proof(*gone)
            assert not result.accepted and "No such file" in result.reason
        else:
            with pytest.raises(InputError, match="must be a"):
                check_proof(*gone)


@pytest.mark.parametrize(
    "value", [{}, [], None, "text", {"properties": None}, {"parts": 3, "model_sha256": "x"}], ids=repr)
def test_content_of_another_shape_is_a_refusal_not_a_crash(proof: Proof, tmp_path: Path, value: Any) -> None:
    assert not proof.saying(value).check(tmp_path).accepted
    assert not proof.claiming(value).check(tmp_path).accepted


# --- the attacker who computes the digests anew ------------------------------------------------------------


def attack_rehashed(proof: Proof, folder: Path, count: int, seed: int) -> tuple[int, int]:
    """Returns how many mutants were false by brute force, and how many were accepted; none may be both."""
    rng = np.random.default_rng(seed)
    false = accepted = 0
    for number in range(count):
        # byte changes last: a file that does not parse cannot be changed further
        kind, other = mutant(proof, rng, KINDS[:3])
        if rng.random() < 0.4:
            kind, other = mutant(other, rng, KINDS[:2] if rng.random() < 0.5 else KINDS[3:5])
        other = other.rehashed()
        result = other.check(folder)
        with np.errstate(all="ignore"):
            try:
                found = violation(other, seed=number)
            except Exception:  # not a graph or a contract any more
                found = np.nan
        false += found > 0
        accepted += result.accepted
        assert not (result.accepted and not found <= 0), (kind, number, found)
    return false, accepted


def test_a_mutant_with_fresh_digests_is_refused_where_its_claim_is_false(proof: Proof, tmp_path: Path) -> None:
    false, accepted = attack_rehashed(proof, tmp_path, count=250, seed=3)
    assert false > 12 and accepted > 12  # the attack has teeth on both sides


def test_a_mutant_with_fresh_digests_is_refused_where_its_claim_is_false_in_a_long_attack(
    proof: Proof, tmp_path: Path,
) -> None:
    false, accepted = attack_rehashed(proof, tmp_path, count=750, seed=4)
    assert false > 37 and accepted > 37


def rescaled(proof: Proof, layer: str, scaling: str, by: float) -> Proof:
    """The same function with slopes `by` times smaller in the network and larger in the scaling."""
    model = proof.graph
    set_tensor(model, layer, numpy_helper.to_array(tensor(model, layer)) / np.float32(by))
    set_tensor(model, scaling, numpy_helper.to_array(tensor(model, scaling)) * np.float32(by))
    return proof.with_graph(model)


def test_a_falling_network_cannot_hide_behind_a_large_scaling(valid: dict[str, Proof], tmp_path: Path) -> None:
    # it once could: -1 of the output range a range of the feature, as a network's slope of -1e-6 and a gain of 1e6
    turned = valid["single"].with_claim(("properties",), [monotone("pressure", direction="decreasing")])
    assert violation(turned) > 0
    for layer, scaling in (("weight_2", "target_gain"), ("weight_0", "feature_factor")):
        small = rescaled(turned, layer, scaling, 2.0**20)
        if scaling == "target_gain":
            model = small.graph
            set_tensor(model, "bias_2", numpy_helper.to_array(tensor(model, "bias_2")) / np.float32(2.0**20))
            small = small.with_graph(model)
        assert violation(small) > 0
        assert not small.rehashed().check(tmp_path).accepted


def test_a_linear_model_without_a_hidden_layer_is_read_as_what_it_is(tmp_path: Path) -> None:
    # it once was read as a network of one neuron whose output weight is its input weight: f = -x was "increasing"
    proof = prove(tmp_path / "p", monotone_network(3, (4,), [(0, 1)]), task_with([monotone("pressure")]))
    model = proof.graph
    del model.graph.node[3:5]
    model.graph.node[2].output[0] = model.graph.node[3].input[0]
    numbers = {"feature_offset": [0.0], "feature_factor": [1.0], "weight_0": [[-1.0]], "bias_0": [0.0]}
    for name, array in numbers.items():
        set_tensor(model, name, array)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    claim = proof.claim
    claim |= {"features": ["pressure"], "box": {"pressure": claim["box"]["pressure"]},
              "units": {"pressure": "share", "latency_ms": "ms"}}
    other = proof.with_graph(model).claiming(claim).rehashed()
    assert violation(other) > 0
    assert not other.check(tmp_path).accepted
    turned = other.with_claim(("properties",), [monotone("pressure", direction="decreasing")]).rehashed()
    assert violation(turned) <= 0
    assert turned.check(tmp_path).accepted


def nodes_swapped(model: onnx.ModelProto) -> None:
    a, b = node_of(model, "Sub"), node_of(model, "Mul")
    a.op_type, b.op_type = b.op_type, a.op_type


def relu_twice(model: onnx.ModelProto) -> None:
    node = copy.deepcopy(node_of(model, "Relu"))
    node.input[0], node.output[0] = node_of(model, "Relu").output[0], "again"
    node_of(model, "Gemm", 1).input[0] = "again"
    model.graph.node.insert(list(model.graph.node).index(node_of(model, "Relu")) + 1, node)


def negated(model: onnx.ModelProto) -> None:
    last = model.graph.node[-1]
    name = last.output[0]
    last.output[0] = "before"
    model.graph.node.append(helper.make_node("Neg", ["before"], [name]))


def gemm_attribute(name: str, value: float | int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node_of(model, "Gemm").attribute.append(helper.make_attribute(name, value))
    return change


def without_transposition(model: onnx.ModelProto) -> None:
    del node_of(model, "Gemm").attribute[:]


def replaced_kind(kind: str, **attributes: Any) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node_of(model, "Relu").CopyFrom(helper.make_node(
            kind, list(node_of(model, "Relu").input), list(node_of(model, "Relu").output), **attributes))
    return change


def scaled_tensor(name: str, by: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        set_tensor(model, name, numpy_helper.to_array(tensor(model, name)) * np.float32(by))
    return change


def of_type(name: str, dtype: Any) -> Callable[[onnx.ModelProto], None]:
    """dtype None: the one of float32 and float64 that the others do not have."""
    def change(model: onnx.ModelProto) -> None:
        array = numpy_helper.to_array(tensor(model, name))
        set_tensor(model, name, array, dtype or (np.float64 if array.dtype == np.float32 else np.float32))
    return change


def not_a_number(model: onnx.ModelProto) -> None:
    array = numpy_helper.to_array(tensor(model, "weight_1")).copy()
    array[0, 0] = np.nan
    set_tensor(model, "weight_1", array)


def offset_as_a_column(model: onnx.ModelProto) -> None:
    set_tensor(model, "feature_offset", numpy_helper.to_array(tensor(model, "feature_offset"))[:, None])


def bias_as_a_column(model: onnx.ModelProto) -> None:
    set_tensor(model, "bias_0", numpy_helper.to_array(tensor(model, "bias_0"))[:, None])


def two_outputs(model: onnx.ModelProto) -> None:
    weight, bias = (numpy_helper.to_array(tensor(model, name)) for name in ("weight_2", "bias_2"))
    set_tensor(model, "weight_2", np.concatenate([weight, -weight]))
    set_tensor(model, "bias_2", np.concatenate([bias, bias]))


def external_weights(model: onnx.ModelProto) -> None:
    item = tensor(model, "weight_0")
    Path("weights.bin").write_bytes(item.raw_data)
    item.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(len(item.raw_data)))):
        item.external_data.add(key=key, value=value)
    item.ClearField("raw_data")


def sparse_weights(model: onnx.ModelProto) -> None:
    rows, columns = numpy_helper.to_array(tensor(model, "weight_0")).shape
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([-9.0], dtype=np.float32), "weight_0"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0], dtype=np.int64), "places"))
    sparse.dims.extend([rows, columns])


def second_weights(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(tensor(model, "weight_0"))


def weights_in_two_encodings(model: onnx.ModelProto) -> None:
    item = tensor(model, "weight_0")
    item.float_data.extend([-1.0] * (len(item.raw_data) // 4))


def weights_as_an_input(model: onnx.ModelProto) -> None:
    array = numpy_helper.to_array(tensor(model, "weight_0"))
    model.graph.input.append(helper.make_tensor_value_info("weight_0", TensorProto.FLOAT, array.shape))


def input_named_as_a_weight(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = model.graph.node[0].input[0] = "weight_0"


def node_output_named_as_a_weight(model: onnx.ModelProto) -> None:
    node_of(model, "Mul").output[0] = node_of(model, "Gemm").input[0] = "weight_1"


def bias_without_a_name(model: onnx.ModelProto) -> None:
    tensor(model, "bias_0").name = node_of(model, "Gemm").input[2] = ""


def own_relu(model: onnx.ModelProto) -> None:
    model.functions.append(helper.make_function(
        "", "Relu", ["X"], ["Y"], [helper.make_node("Neg", ["X"], ["Y"])], [helper.make_opsetid("", 17)]))


def another_domain(model: onnx.ModelProto) -> None:
    node_of(model, "Relu").domain = "elsewhere"
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))


def second_output(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("layer_0", TensorProto.FLOAT, ["batch", None]))


def other_output(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "unscaled"


def input_declared(kind: int, shape: list[int | str | None] | None) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        value = model.graph.input[0]
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shape))
    return change


def input_of(*sizes: int | str | None, kind: int = TensorProto.FLOAT) -> Callable[[onnx.ModelProto], None]:
    """Input sizes; "n" stands for the right width."""
    def change(model: onnx.ModelProto) -> None:
        width = numpy_helper.to_array(tensor(model, "weight_0")).shape[1]
        input_declared(kind, [width if size == "n" else size for size in sizes])(model)
    return change


GRAPHS: dict[str, Callable[[onnx.ModelProto], None]] = {
    "two nodes swapped": nodes_swapped, "a node more": relu_twice, "negated at the end": negated,
    "Gemm with alpha": gemm_attribute("alpha", -1.0), "Gemm with alpha 1": gemm_attribute("alpha", 1.0),
    "Gemm with beta": gemm_attribute("beta", 0.0), "Gemm with transA": gemm_attribute("transA", 1),
    "Gemm with transB twice": gemm_attribute("transB", 0), "Gemm without transB": without_transposition,
    "Abs for Relu": replaced_kind("Abs"), "LeakyRelu for Relu": replaced_kind("LeakyRelu", alpha=-1.0),
    "Neg for Relu": replaced_kind("Neg"), "Relu with an attribute": replaced_kind("Relu", alpha=-1.0),
    "negative gain": scaled_tensor("target_gain", -1),
    "no gain": scaled_tensor("target_gain", 0), "negative factors": scaled_tensor("feature_factor", -1),
    "weights of another type": of_type("weight_1", None), "float16 weights": of_type("weight_1", np.float16),
    "NaN weight": not_a_number, "offset as a column": offset_as_a_column, "bias as a column": bias_as_a_column,
    "two outputs in one": two_outputs, "a second output": second_output, "another output": other_output,
    "weights in another file": external_weights, "sparse weights beside dense ones": sparse_weights,
    "weights given twice": second_weights, "weights in two encodings": weights_in_two_encodings,
    "weights that a caller may replace": weights_as_an_input, "input named as a weight": input_named_as_a_weight,
    "node output named as a weight": node_output_named_as_a_weight, "bias without a name": bias_without_a_name,
    "float64 input": input_of("batch", "n", kind=TensorProto.DOUBLE),
    "integer input": input_of("batch", "n", kind=TensorProto.INT64), "one row only": input_of(1, "n"),
    "four rows only": input_of(4, "n"), "no rows": input_of(0, "n"), "columns of any number": input_of("batch", "m"),
    "columns not said": input_of("batch", None), "a column too few": input_of("batch", 1), "no batch": input_of("n"),
    "three sizes": input_of("batch", "n", 1), "sizes not said": input_declared(TensorProto.FLOAT, None),
    "a function of its own called Relu": own_relu, "another domain": another_domain,
}


# Graphs that mean the same as before, or something of which the claim is true: brute force says so below.
HARMLESS = {"a node more", "Gemm with alpha 1", "one row only", "columns of any number", "no gain",
            "weights that a caller may replace"}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_of_another_shape_is_refused_with_fresh_digests(
    proof: Proof, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # an external file would be looked for here
    model = proof.graph
    GRAPHS[name](model)
    other = proof.with_graph(model).rehashed()
    result = other.check(tmp_path)
    assert not result.accepted or (name in HARMLESS and violation(other) <= 0)


def rule(claim: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = claim["properties"][0]["monotone"]
    return found


CLAIMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no property": lambda c: c.update(properties=[]),
    "no feature": lambda c: c.update(properties=[monotone()]),
    "a property of another kind beside": lambda c: c["properties"][0].update(range=[0, 1]),
    "an unknown field in a property": lambda c: rule(c).update(strict=True),
    "an unknown direction": lambda c: rule(c).update(direction="up"),
    "an unknown feature": lambda c: rule(c).update(features=["mood"]),
    "negative tolerance": lambda c: c["tolerance"].update(latency_ms=-1e-9),
    "NaN tolerance": lambda c: c["tolerance"].update(latency_ms=float("nan")),
    "infinite tolerance": lambda c: c["tolerance"].update(latency_ms=float("inf")),
    "a tolerance of nothing": lambda c: c["tolerance"].update(latency_s=1.0),
    "no tolerance": lambda c: c.update(tolerance={}),
    "negative rounding": lambda c: c["rounding"].update(latency_ms=-1e-9),
    "NaN rounding": lambda c: c["rounding"].update(latency_ms=float("nan")),
    "less rounding than there is": lambda c: c.update(
        rounding={"latency_ms": 1e-300}, properties=[*c["properties"], {"range": {"output": "latency_ms",
                                                                                  "minimum": -1e6}}]),
    "a wall at infinity": lambda c: c["box"].update(pressure=[0.125, float("inf")]),
    "a wall that is not a number": lambda c: c["box"].update(pressure=[0.125, float("nan")]),
    "walls the wrong way round": lambda c: c["box"].update(pressure=[2.0, 1.0]),
    "an input too few": lambda c: c["features"].pop(),
    "an input twice": lambda c: c.update(features=["pressure", "pressure", "temperature"]),
    "no output": lambda c: c.update(outputs=[]),
    "a condition that nothing meets": lambda c: rule(c).update(when={"pressure": [2.0, 3.0]}),
    "a condition the wrong way round": lambda c: rule(c).update(when={"pressure": [0.5, 0.4]}),
    "a condition on nothing": lambda c: rule(c).update(when={"mood": [0, 1]}),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_that_says_nothing_or_too_much_is_refused_with_fresh_digests(
    proof: Proof, tmp_path: Path, name: str,
) -> None:
    claim = proof.claim
    CLAIMS[name](claim)
    assert not proof.claiming(claim).rehashed().check(tmp_path).accepted


def archive(p: Proof, dimension: Any = None, value: Any = None, **more: Any) -> bytes:
    """A proof with these arrays as its first tree."""
    file = io.BytesIO()
    given = {"dimension_0": dimension, "value_0": value, **more}
    np.savez(file, document=np.frombuffer(json.dumps(p.document).encode(), dtype=np.uint8),
             **{name: array for name, array in given.items() if array is not None})
    return file.getvalue()


LEAVES: dict[str, Callable[[Proof], bytes]] = {
    "empty": lambda p: b"",
    "cut": lambda p: p.proof[: len(p.proof) // 2],
    "text": lambda p: b"split_dimension,split_value\n-1,0\n",
    "pickled": lambda p: archive(p, np.array([-1, None], dtype=object), np.array([0.0, 0.0])),
    "an array missing": lambda p: archive(p, np.array([-1])),
    "an array more": lambda p: archive(p, *p.tree, dimension_1=np.array([-1]), value_1=np.zeros(1)),
    "no leaf": lambda p: archive(p, np.array([], dtype=int), np.array([])),
    "fractional dimensions": lambda p: archive(p, np.array([0.5, -1, -1]), np.zeros(3)),
    "text as numbers": lambda p: archive(p, np.array(["-1"]), np.array(["0"])),
    "complex": lambda p: archive(p, np.array([0, -1, -1]), np.array([0.5j, 0, 0])),
    "a matrix": lambda p: archive(p, np.array([[-1]]), np.array([[0.0]])),
    "a scalar": lambda p: archive(p, np.array(-1), np.array(0.0)),
    "different lengths": lambda p: archive(p, np.array([0, -1, -1]), np.array([0.5])),
    "a bare array": lambda p: np.array([-1]).tobytes(),
}


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_that_are_no_tree_are_refused(proof: Proof, tmp_path: Path, name: str) -> None:
    other = replace(proof, proof=LEAVES[name](proof))
    assert not other.check(tmp_path).accepted and not other.rehashed().check(tmp_path).accepted


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_leaves_that_are_pickled_are_never_unpickled(proof: Proof, tmp_path: Path) -> None:
    trapped = np.empty(1, dtype=object)
    trapped[0] = Trap(tmp_path / "sprung")
    assert not replace(proof, proof=archive(proof, trapped, np.zeros(1))).check(tmp_path).accepted
    assert not (tmp_path / "sprung").exists()


def test_a_second_output_is_refused_also_where_two_leaves_hide_it(valid: dict[str, Proof], tmp_path: Path) -> None:
    # as many leaves as outputs: a broadcast would give each leaf an output of its own
    proof = valid["single"].with_tree(np.array([0, -1, -1], dtype=np.int16), np.array([0.5, 0.0, 0.0])).rehashed()
    assert proof.check(tmp_path).accepted
    model = proof.graph
    weight, bias = (numpy_helper.to_array(tensor(model, name)) for name in ("weight_2", "bias_2"))
    set_tensor(model, "weight_2", np.concatenate([weight, weight]))
    set_tensor(model, "bias_2", np.concatenate([bias, bias]))
    assert not proof.with_graph(model).rehashed().check(tmp_path).accepted


def test_leaves_that_unfold_to_gigabytes_are_refused_unread(valid: dict[str, Proof], tmp_path: Path) -> None:
    single = valid["single"]
    large = single.with_tree(np.full(130_000_000, -1, dtype=np.int8), np.zeros(1))
    result = large.check(tmp_path)
    assert not result.accepted and "proof must unfold to at most 128,000,000 bytes" in result.reason


def test_a_coarser_tree_than_the_proof_needs_is_refused(valid: dict[str, Proof], tmp_path: Path) -> None:
    result = valid["many"].with_tree(np.array([-1], dtype=np.int16), np.zeros(1)).rehashed().check(tmp_path)
    assert not result.accepted and "every leaf must be proved" in result.reason


def test_a_bound_that_is_not_a_number_is_no_proof(
        proof: Proof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What overflows is refused before; a bound that left float64's range in another way must not get through."""
    def one_is_lost(*arguments: Any, **options: Any) -> Any:
        bounds = leaf_bounds(*arguments, **options)
        bounds[-1, -1] = np.nan
        return bounds

    assert proof.check(tmp_path).accepted
    monkeypatch.setattr(proof_file, "leaf_bounds", one_is_lost)
    result = proof.check(tmp_path)
    assert not result.accepted and "every leaf must be proved, 1 of" in result.reason


@pytest.mark.parametrize("more", [-1, 1])
def test_a_proof_may_not_say_more_or_fewer_leaves_than_it_has(proof: Proof, tmp_path: Path, more: int) -> None:
    result = proof.saying(changed(proof.document, "parts", 0, "leaves", to=proof.leaves + more)).check(tmp_path)
    assert not result.accepted and "their leaves be counted right" in result.reason


def test_a_proof_of_another_model_or_box_is_refused(valid: dict[str, Proof], tmp_path: Path) -> None:
    single, many = valid["single"], valid["many"]
    for other in (replace(single, model=many.model), replace(single, proof=many.proof),
                  replace(single, specification=many.specification)):
        assert not other.check(tmp_path).accepted


# --- what the checker reads is what a runtime runs ---------------------------------------------------------


def scrambled(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """One to three random edits of names, nodes, attributes and shapes."""
    graph = model.graph
    names = [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output] + [graph.input[0].name, ""]
    for _ in range(int(rng.integers(1, 4))):
        node = graph.node[int(rng.integers(len(graph.node)))]
        item = graph.initializer[int(rng.integers(len(graph.initializer)))]
        match int(rng.integers(10)):
            case 0:
                node.input[int(rng.integers(len(node.input)))] = str(rng.choice(names))
            case 1:
                node.output[0] = str(rng.choice(names))
            case 2:
                item.name = str(rng.choice(names))
            case 3:
                array = numpy_helper.to_array(item).copy()
                shapes = [(-1,), (1, -1), (-1, 1), array.T.shape, (1, *array.shape)]
                set_tensor(model, item.name, array.reshape(shapes[int(rng.integers(len(shapes)))]))
            case 4:
                node.attribute.append(helper.make_attribute(str(rng.choice(["transA", "transB", "alpha", "beta"])), 1))
            case 5:
                node.op_type = str(rng.choice(["Sub", "Mul", "Add", "Relu", "Gemm", "Div", "MatMul", "Sigmoid"]))
            case 6:
                graph.node.insert(int(rng.integers(len(graph.node))), copy.deepcopy(node))
            case 7:
                other = int(rng.integers(len(graph.node)))
                node.input[0], graph.node[other].input[0] = graph.node[other].input[0], node.input[0]
            case 8:
                graph.initializer.append(copy.deepcopy(item))
            case _:
                model.opset_import[0].version = int(rng.integers(7, 22))


def as_the_checker_reads(model: bytes, x: np.ndarray) -> np.ndarray:
    """The function that a proof of this file is about."""
    chain = read_chain(model, curves=True)
    return stage_values(chain_stages(chain.weights, chain.biases, chain.kinds), x)


def check_reading(proof: Proof, count: int, seed: int) -> int:
    """Returns how many scrambled files the checker could read; onnxruntime agrees about each."""
    rng = np.random.default_rng(seed)
    read = 0
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    low, high = np.array(SCALING.features.minimum), np.array(SCALING.features.maximum)
    for _ in range(count):
        graph = proof.graph
        scrambled(graph, rng)
        model = graph.SerializeToString()
        x = (low + (high - low) * rng.random((8, 3))).astype(np.float32)
        try:
            with np.errstate(all="ignore"):
                expected = as_the_checker_reads(model, x.astype(np.float64))
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            got = np.concatenate([session.run(None, {session.get_inputs()[0].name: row[None]})[0] for row in x])
        except Exception:
            continue  # one of both does not take it
        assert got.shape == expected.shape
        magnitudes = 1 + np.abs(expected).max() + np.abs(evaluate_graph(model, x.astype(np.float64))).max()
        assert np.abs(got - expected).max() <= FLOAT32_PARITY * magnitudes
        read += 1
    return read


def test_what_the_checker_can_read_onnxruntime_runs_as_it_is_read(proof: Proof) -> None:
    assert check_reading(proof, count=250, seed=5) > 5


def test_what_the_checker_can_read_onnxruntime_runs_as_it_is_read_in_a_long_attack(proof: Proof) -> None:
    assert check_reading(proof, count=4000, seed=6) > 80
