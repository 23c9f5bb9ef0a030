"""Forests are decided exactly: against every value that there is, and as scikit-learn's models are exported."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from feature_store.errors import InputError
from models.verification.decide import decide
from models.verification.network.runtime_session import open_session
from models.verification.proof_file import check_proof, write_proof
from models.verification.trees.forest_reader import read_forest
from models.verification.verdict import BoxTree, Status
from tests.models.verification.onnx_files import replayed
from tests.models.verification.trees.forests import (
    forest_model,
    random_forest,
    rises,
    run,
    scaler,
    table,
    written,
)

UNIT = np.zeros(3), np.ones(3)
HEAD = "features: [a, b, c]\noutputs: [y]\nbox: {a: [0, 1], b: [0, 1], c: [0, 1]}\n"
MODELS: dict[str, Callable[[], Any]] = {
    "tree": lambda: DecisionTreeRegressor(max_depth=5, random_state=0),
    "forest": lambda: RandomForestRegressor(12, max_depth=5, random_state=0),
    "extra trees": lambda: ExtraTreesRegressor(12, max_depth=5, random_state=0),
    "boosting": lambda: GradientBoostingRegressor(n_estimators=20, random_state=0),
    "histograms": lambda: HistGradientBoostingRegressor(max_iter=20, random_state=0),
    "standard, forest": lambda: make_pipeline(StandardScaler(), RandomForestRegressor(5, max_depth=5, random_state=0)),
    "min-max, histograms": lambda: make_pipeline(MinMaxScaler(), HistGradientBoostingRegressor(max_iter=20)),
}


def exported(model: Any, outputs: int = 1) -> bytes:
    """The model, trained and converted."""
    from skl2onnx import to_onnx

    random = np.random.default_rng(0)
    x = random.uniform(0.0, 1.0, (400, 3)).astype(np.float32)
    y = 3 * x[:, 0] - 2 * x[:, 1] + x[:, 2] ** 2 + 0.3 * random.normal(size=len(x))
    y = y if outputs == 1 else np.stack([y * (k + 1) for k in range(outputs)], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of skl2onnx about NumPy
        return bytes(to_onnx(model.fit(x, y), x[:1]).SerializeToString())


def near_walls(content: bytes) -> np.ndarray[Any, Any]:
    """Random points, and with each input at a wall of a box, and at the numbers beside it."""
    forest, random = read_forest(content), np.random.default_rng(1)
    x = random.uniform(-0.2, 1.2, (600, forest.inputs)).astype(np.float32)
    for row in range(150, 600):
        feature = row % forest.inputs
        walls = forest.high[np.isfinite(forest.high[:, feature]), feature]
        if len(walls):
            wall = np.float32(walls[random.integers(len(walls))])
            x[row, feature] = (wall, np.nextafter(wall, np.float32(9)), np.nextafter(wall, np.float32(-9)))[row % 3]
    return x.astype(np.float64)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_is_what_onnxruntime_computes(name: str) -> None:
    content = exported(MODELS[name]())
    x, forest = near_walls(content), read_forest(content)
    assert (abs(run(content, x) - forest.value(x)) <= forest.execution_error(x)).all()
    assert (forest.execution_error(x) < 1e-4).all()


@pytest.mark.parametrize("scale", [[0.3, -0.7, 3e-5], [-1e-6, 7.0, -123.4]])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT"])
def test_a_scaler_is_pulled_into_the_thresholds_to_the_last_bit(scale: list[float], mode: str) -> None:
    offset = [0.1, -0.2, 0.37]
    trees = [(feature, (0.4 - offset[feature]) * scale[feature], [1.0], [2.0]) for feature in range(3)]
    content = forest_model(trees, 3, mode=mode, before=(scaler(offset, scale),)).SerializeToString()
    start = np.full(300, 0.4, dtype=np.float32)
    for k in range(1, 150):
        start[2 * k], start[2 * k + 1] = (np.nextafter(start[2 * k - 2 + side], np.float32(9 * (-1) ** side))
                                          for side in (0, 1))
    x = np.repeat(start[:, None], 3, axis=1).astype(np.float64)
    assert len({tuple(row) for row in run(content, x)}) > 1
    np.testing.assert_array_equal(read_forest(content).value(x), run(content, x))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
@pytest.mark.parametrize("seed", range(6))
def test_a_range_is_decided_as_all_values_say(tmp_path: Path, seed: int, aggregate: str) -> None:
    model = random_forest(seed, aggregate_function=aggregate, base_values=[0.25],
                          mode="BRANCH_LT" if seed % 2 else "BRANCH_LEQ")
    least, most = float(table(model, *UNIT).min()), float(table(model, *UNIT).max())
    for off, expected in ((1e-3, "PROVED"), (-1e-3, "REFUTED")):
        for side, value in (("minimum", least - off), ("maximum", most + off)):
            files = written(tmp_path, model, HEAD + f"properties: [range: {{output: y, {side}: {value!r}}}]\n")
            found = decide(*files, seconds=20.0, certificate=tmp_path / "proof.npz")
            assert found.verdict == expected, found
            assert ("It is proved" in found.to_json()["statement"]) == (expected == "PROVED")
            if expected == "REFUTED":
                ((_, y),) = replayed(files[0], found.witness or {})
                assert y[0] < value if side == "minimum" else y[0] > value
            else:
                assert check_proof(tmp_path / "proof.npz", *files).accepted


@pytest.mark.parametrize("seed", range(12))
def test_an_order_is_decided_as_all_values_say(tmp_path: Path, seed: int) -> None:
    """Trees whose values rise along the first input, but in some of which two leaves are exchanged."""
    random = np.random.default_rng(seed)

    def tree(depth: int, low: float, high: float) -> Any:
        if depth == 0:
            return [float(np.float32(random.uniform(low, high)))]
        if depth % 2:
            middle = (low + high) / 2
            halves = [tree(depth - 1, low, middle), tree(depth - 1, middle, high)]
            halves = halves[::-1] if random.random() < 0.03 * (seed % 4) else halves
            return 0, float(random.integers(1, 8)) / 8, *halves
        return 1 + int(random.integers(2)), 0.5, tree(depth - 1, low, high), tree(depth - 1, low, high)

    model = forest_model([tree(3, 0.0, 1.0) for _ in range(4)], 3)
    ordered = rises(table(model, *UNIT)[..., 0], 0)
    files = written(tmp_path, model, HEAD + "properties: [monotone: {features: [a], direction: increasing}]\n")
    found = decide(*files, seconds=20.0, certificate=tmp_path / "proof.npz")
    assert found.verdict == ("PROVED" if ordered else "REFUTED")
    if ordered:
        assert check_proof(tmp_path / "proof.npz", *files).accepted
    else:
        (low, y), (high, z) = replayed(files[0], found.witness or {})
        assert low[0] < high[0] and (low[1:] == high[1:]).all() and y[0] > z[0]


def test_both_verdicts_on_orders_occur_above(tmp_path: Path) -> None:
    """The premise of the test above: of the falling direction nothing holds, of the rising one some."""
    model = forest_model([(0, 0.5, [0.0], [1.0])], 3)
    for direction, expected in (("increasing", "PROVED"), ("decreasing", "REFUTED")):
        text = HEAD + f"properties: [monotone: {{features: [a], direction: {direction}}}]\n"
        assert decide(*written(tmp_path, model, text), seconds=20.0).verdict == expected


@pytest.mark.parametrize(("constraints", "expected"), [([1, -1, 0], "PROVED"), (None, "REFUTED")])
@pytest.mark.parametrize("scaled", [False, True])
def test_boosting_is_monotone_where_it_was_told_to_be(tmp_path: Path, constraints: list[int] | None, expected: str,
                                                      scaled: bool) -> None:
    model = HistGradientBoostingRegressor(max_iter=60, random_state=0, monotonic_cst=constraints)
    files = written(tmp_path, exported(make_pipeline(StandardScaler(), model) if scaled else model), HEAD + """
properties:
  - monotone: {features: [a], direction: increasing}
  - monotone: {features: [b], direction: decreasing}
""")
    proof = tmp_path / "proof.npz"
    found = decide(*files, seconds=60.0, certificate=proof)
    assert found.verdict == expected, found
    assert [part.name for part in found.parts][:1] == ["increasing in a"]
    if expected == "PROVED":
        assert "values stored in the model file" in found.statement and "network" not in found.statement
        assert found.execution.startswith("Executed in float32")
        assert check_proof(proof, *files).accepted
        assert not check_proof(proof, *written(tmp_path, exported(HistGradientBoostingRegressor()),
                                               files[1].read_text())).accepted
    else:
        (low, y), (high, z) = replayed(files[0], found.witness or {})
        changed = int(np.flatnonzero(low != high)[0])
        assert low[changed] < high[changed] and (y[0] > z[0] if changed == 0 else y[0] < z[0])


def test_finite_inputs_conditions_outputs_and_points(tmp_path: Path) -> None:
    model = forest_model([
        (0, 1.5, [0.0, 0.0], (0, 3.0, [1.0, -1.0], [2.0, -2.0])),
        (1, 0.5, [0.0, 0.0], (2, 0.5, [5.0, 0.0], [-5.0, 0.0]))], 3, 2)
    head = ("features: [a, b, c]\noutputs: [y, z]\nbox: {b: [0, 1], c: [0, 1]}\ninputs: {a: {values: [1, 2, 4]}}\n"
            "properties:\n")
    for text, expected in (
            ("monotone: {features: [a], direction: increasing, output: y}", "PROVED"),
            ("monotone: {features: [a], direction: increasing, output: z}", "REFUTED"),
            ("monotone: {features: [c], direction: decreasing, output: y}", "PROVED"),
            ("monotone: {features: [b], direction: increasing, output: y}", "REFUTED"),
            ("monotone: {features: [b], direction: increasing, output: y, when: {c: [0, 0.5]}}", "PROVED"),
            ("order: {lower: z, upper: y, when: {b: [0, 0.5]}}", "PROVED"),
            ("order: {lower: z, upper: y}", "REFUTED"),
            ("robust: {points: [[2, 0.2, 0.2]], radius: {b: 0.3}, change: 0.5, output: y}", "PROVED"),
            ("robust: {points: [[2, 0.2, 0.2]], radius: {b: 0.4}, change: 0.5, output: y}", "REFUTED")):
        files = written(tmp_path, model, f"{head}  - {text}\n")
        found = decide(*files, seconds=20.0, certificate=tmp_path / "proof.npz")
        assert found.verdict == expected, (text, found)
        assert expected == "REFUTED" or check_proof(tmp_path / "proof.npz", *files).accepted


def test_a_property_of_vnnlib_is_decided(tmp_path: Path) -> None:
    model = random_forest(3)
    most = float(table(model, *UNIT).max())
    file, _ = written(tmp_path, model, "")
    for limit, expected in ((most + 1e-3, "PROVED"), (most - 1e-3, "REFUTED")):
        inputs = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} 0.0))(assert (<= X_{i} 1.0))\n"
                         for i in range(3))
        text = tmp_path / "p.vnnlib"
        text.write_text(f"{inputs}(declare-const Y_0 Real)\n(assert (>= Y_0 {limit:.9f}))\n")
        found = decide(file, text, seconds=20.0, certificate=tmp_path / "proof.npz")
        assert found.verdict == expected
        assert ("It is proved" in found.to_json()["statement"]) == (expected == "PROVED")
        assert expected == "REFUTED" or check_proof(tmp_path / "proof.npz", file, text).accepted


def test_the_checker_judges_by_itself(tmp_path: Path) -> None:
    """A proof with too few splits is refused, and one about a limit that does not hold."""
    model = random_forest(1)
    most = float(table(model, *UNIT).max())
    files = written(tmp_path, model, HEAD + f"properties: [range: {{output: y, maximum: {most + 1e-6!r}}}]\n")
    proof = tmp_path / "proof.npz"
    assert decide(*files, seconds=20.0, certificate=proof).status is Status.PROVED
    with np.load(proof) as arrays:
        tree = BoxTree(arrays["dimension_0"], arrays["value_0"])
    assert tree.leaves > 3
    assert write_proof(tmp_path / "again.npz", *files, [tree]).accepted
    alone = BoxTree(np.full(1, -1, dtype=np.int16), np.zeros(1))
    refused = write_proof(tmp_path / "other.npz", *files, [alone])
    assert not refused.accepted and "every leaf must be proved, 1 of 1 are not" in refused.reason
    assert not (tmp_path / "other.npz").exists()
    files = written(tmp_path, model, HEAD + f"properties: [range: {{output: y, maximum: {most - 1e-6!r}}}]\n")
    assert not write_proof(tmp_path / "other.npz", *files, [tree]).accepted


def test_a_limit_of_rounding_is_kept_or_the_proof_is_refused(tmp_path: Path) -> None:
    model = random_forest(2, trees=8)
    text = HEAD + "properties: [range: {output: y, maximum: 100}]\nrounding: {y: %s}\n"
    assert decide(*written(tmp_path, model, text % "1.0e-4"), seconds=20.0).verdict == "PROVED"
    found = decide(*written(tmp_path, model, text % "1.0e-8"), seconds=20.0, certificate=tmp_path / "proof.npz")
    assert found.verdict == "UNKNOWN" and "may add at most 1e-08" in found.parts[-1].reason


def test_the_time_limit_holds(tmp_path: Path) -> None:
    model = random_forest(0, inputs=12, trees=60, depth=7)
    names = [f"x{i}" for i in range(12)]
    text = (f"features: [{', '.join(names)}]\noutputs: [y]\nbox: {{{', '.join(f'{name}: [0, 1]' for name in names)}}}\n"
            "properties: [range: {output: y, maximum: 40}]\n")
    began = time.monotonic()
    found = decide(*written(tmp_path, model, text), seconds=2.0)
    assert found.verdict == "TIMEOUT" and time.monotonic() - began < 5.0


@pytest.mark.parametrize(("properties", "message"), [
    ("share: {of: {range: {output: y, maximum: 1}}, at_least: 0.9, confidence: 0.99}", "got share"),
    ("order: {lower: y, upper: a}", "got a comparison of an output with an input"),
])
def test_kinds_that_are_not_decided_are_refused_by_name(tmp_path: Path, properties: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decide(*written(tmp_path, random_forest(0), f"{HEAD}properties: [{properties}]\n"))


def _changed(name: str, value: Any) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = model.graph.node[-1]
        kept = [one for one in node.attribute if one.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))

    return change


def _outside(model: onnx.ModelProto) -> None:
    """A constant that lies in the working folder, and is an input as well so that ONNX's own checker takes it."""
    offset = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=bytes(8))
    set_external_data(offset, "w.bin")
    offset.ClearField("raw_data")
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    tree = model.graph.node.pop()
    tree.input[0] = "z"
    model.graph.node.extend([helper.make_node("Add", ["x", "w"], ["z"]), tree])


def _behind(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Relu", ["y"], ["w"]))
    model.graph.output[0].name = "w"


STUMP = ([(0, 0.5, [1.0], [2.0])], 2)
MALFORMED: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "another function behind": (_behind, "Identity, Cast to float, Scaler"),
    "weights outside of the file": (_outside, "must stand in the file itself"),
    "post_transform": (_changed("post_transform", "LOGISTIC"), "post_transform must be NONE"),
    "aggregate": (_changed("aggregate_function", "MAX"), "must be SUM or AVERAGE"),
    "mode": (_changed("nodes_modes", ["BRANCH_EQ", "LEAF", "LEAF"]), "must be BRANCH_LEQ"),
    "feature": (_changed("nodes_featureids", [5, 0, 0]), "must be of 2 inputs"),
    "infinite threshold": (_changed("nodes_values", [float("inf"), 0.0, 0.0]), "thresholds must be finite"),
    "no threshold": (_changed("nodes_values", [float("nan"), 0.0, 0.0]), "thresholds must be finite"),
    "child that is not there": (_changed("nodes_truenodeids", [7, 0, 0]), "two nodes of its tree below"),
    "circle": (_changed("nodes_truenodeids", [0, 0, 0]), "must be its root"),
    "twice below": (_changed("nodes_falsenodeids", [1, 0, 0]), "two parents"),
    "unreached": (_changed("nodes_modes", ["LEAF", "LEAF", "LEAF"]), "must all be reached"),
    "same id twice": (_changed("nodes_nodeids", [0, 1, 1]), "different ids"),
    "lengths": (_changed("nodes_values", [0.5]), "as many of each attribute"),
    "value without a leaf": (_changed("target_nodeids", [0, 2]), "target must be"),
    "value of another output": (_changed("target_ids", [0, 4]), "target must be"),
    "infinite value": (_changed("target_weights", [1.0, float("inf")]), "target must be"),
    "base": (_changed("base_values", [1.0, 2.0]), "base_values must be 1"),
    "trees among each other": (_changed("nodes_treeids", [0, 1, 0]), "nodes of a tree must stand together"),
    "tree below 0": (_changed("nodes_treeids", [-1, -1, -1]), "nodes of a tree must stand together"),
    "double": (_changed("nodes_values_as_tensor", helper.make_tensor("t", 11, [3], [0.5, 0.0, 0.0])),
               "float32 attributes"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_forest_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.bin").write_bytes(bytes(8))
    change, message = MALFORMED[name]
    model = forest_model(*STUMP)
    change(model)
    text = "features: [a, b]\noutputs: [y]\nbox: {a: [0, 1], b: [0, 1]}\nproperties: [range: {output: y, maximum: 3}]\n"
    with pytest.raises(InputError, match=message):
        decide(*written(tmp_path, model, text))


def test_a_base_value_that_onnxruntime_leaves_out_is_refused(tmp_path: Path) -> None:
    """Of several outputs it gives 0 where no leaf that is met names one; where one tree always does all is well."""
    text = "features: [a]\noutputs: [y, z]\nbox: {a: [0, 1]}\nproperties: [range: {output: z, minimum: 99}]\n"
    model = forest_model([(0, 0.5, [1.0, 1.0], [1.0])], 1, outputs=2, base_values=[0.0, 100.0])
    ran = open_session(model.SerializeToString()).run(None, {"x": np.array([[0.25], [0.75]], np.float32)})[0]
    assert ran[:, 1].tolist() == [101.0, 0.0]
    with pytest.raises(InputError, match="base_values of several outputs must be of such that every leaf"):
        decide(*written(tmp_path, model, text))
    more = forest_model([(0, 0.5, [1.0, 1.0], [1.0]), [0.0, 0.0]], 1, outputs=2, base_values=[0.0, 100.0])
    assert decide(*written(tmp_path, more, text)).verdict == "PROVED"


def test_a_leaf_without_a_value_is_refused(tmp_path: Path) -> None:
    """onnxruntime gives such a one its nodes_values where there is one output."""
    text = "features: [a, b]\noutputs: [y]\nbox: {a: [0, 1], b: [0, 1]}\nproperties: [range: {output: y, maximum: 3}]\n"
    model = forest_model(*STUMP)
    for name, value in (("target_treeids", [0]), ("target_nodeids", [1]), ("target_ids", [0]),
                        ("target_weights", [1.0]), ("nodes_values", [0.5, 0.0, 100.0])):
        _changed(name, value)(model)
    ran = open_session(model.SerializeToString()).run(None, {"x": np.array([[0.9, 0.0]], np.float32)})[0]
    assert ran.tolist() == [[100.0]]
    with pytest.raises(InputError, match="leaves must each have a value of the output"):
        decide(*written(tmp_path, model, text))


def test_a_column_of_constants_is_refused(tmp_path: Path) -> None:
    """onnxruntime adds it to rows, of which there are as many as a batch has."""
    model = forest_model(*STUMP, before=(helper.make_node("Add", ["x", "c"], ["z"]),))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((2, 1), np.float32), "c"))
    text = "features: [a, b]\noutputs: [y]\nbox: {a: [0, 1], b: [0, 1]}\nproperties: [range: {output: y, maximum: 3}]\n"
    with pytest.raises(InputError, match="constant must be finite float32 numbers, for each of 2 inputs or one"):
        decide(*written(tmp_path, model, text))


def test_a_forest_whose_sums_cancel_is_not_proved(tmp_path: Path) -> None:
    """1e8 + 1 - 1e8 is 0 in float32."""
    files = written(tmp_path, forest_model([[1e8], [1.0], [-1e8]], 1),
                    "features: [a]\noutputs: [y]\nbox: {a: [0, 1]}\nproperties: [range: {output: y, minimum: 0.5}]\n")
    found = decide(*files)
    assert found.verdict == "UNKNOWN" and "execution in float32 must keep y within its size" in str(found)


def test_a_leaf_that_no_random_point_meets_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf a ten-millionth wide among the walls of a hundred others."""
    from dataclasses import replace

    from models.verification.trees import decide_forest

    trees: list[Any] = [(0, 0.7000002, (0, 0.7000001, [0.0], [1.0]), [0.0])]
    trees += [(0, k / 100, [0.0], [0.0]) for k in range(100)]
    files = written(tmp_path, forest_model(trees, 1),
                    "features: [a]\noutputs: [y]\nbox: {a: [0, 1]}\nproperties: [range: {output: y, maximum: 3}]\n")
    assert decide(*files).verdict == "PROVED"
    read = decide_forest.read_forest

    def doubled(content: bytes) -> Any:
        found = read(content)
        return replace(found, values=2 * found.values)

    monkeypatch.setattr(decide_forest, "read_forest", doubled)
    with pytest.raises(InputError, match="forest as read must compute what onnxruntime computes"):
        decide(*files)


def test_sums_that_may_leave_float32_are_not_proved(tmp_path: Path) -> None:
    """Added in one order they are 0, in another infinite."""
    trees: list[Any] = [(0, 0.7002, (0, 0.7001, [0.0], [value]), [0.0]) for value in (3e38, 3e38, -3e38, -3e38)]
    found = decide(*written(tmp_path, forest_model(trees, 1), "features: [a]\noutputs: [y]\nbox: {a: [0, 1]}\n"
                            "properties: [range: {output: y, maximum: 1.0e+38}]\n"))
    assert found.verdict == "UNKNOWN" and "must stay within float32" in str(found)


def test_what_onnxruntime_computes_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes one threshold for the next number, and one that forgets a value."""
    from dataclasses import replace

    from models.verification.trees import decide_forest

    model = forest_model([(0, 0.5, [1.0], [2.0])], 3)
    files = written(tmp_path, model, HEAD + "properties: [range: {output: y, maximum: 3}]\n")
    assert decide(*files).verdict == "PROVED"
    read = decide_forest.read_forest
    after = float(np.nextafter(np.float32(0.5), np.float32(1)))

    def moved(walls: Any) -> Any:
        beyond = float(np.nextafter(np.float32(after), np.float32(1)))
        return np.where(walls == 0.5, after, np.where(walls == after, beyond, walls))

    for wrong in (lambda forest: replace(forest, low=moved(forest.low), high=moved(forest.high)),
                  lambda forest: replace(forest, values=forest.values[::-1])):
        monkeypatch.setattr(decide_forest, "read_forest", lambda content, wrong=wrong: wrong(read(content)))
        with pytest.raises(InputError, match="forest as read must compute what onnxruntime computes"):
            decide(*files)
