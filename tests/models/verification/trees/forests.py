"""Files of small forests, made by hand and by scikit-learn, and an oracle that knows nothing of boxes.

The oracle runs onnxruntime on one point of each cell between thresholds, which are read from the file's attributes.
"""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from models.verification.network.runtime_session import open_session

Floats = NDArray[np.float64]
Tree = tuple[int, float, Any, Any] | list[float]  # (feature, threshold, where it holds, where not), or the values


def forest_model(trees: list[Tree], inputs: int, outputs: int = 1, mode: str = "BRANCH_LEQ",
                 before: tuple[onnx.NodeProto, ...] = (), **attributes: Any) -> onnx.ModelProto:
    """A TreeEnsembleRegressor of these trees. before: nodes in front, from x to z."""
    columns: dict[str, list[Any]] = {f"nodes_{key}": [] for key in (
        "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
    columns |= {f"target_{key}": [] for key in ("treeids", "nodeids", "ids", "weights")}

    def add(number: int, tree: Tree) -> int:
        node = sum(one == number for one in columns["nodes_treeids"])
        leaf = isinstance(tree, list)
        row = len(columns["nodes_treeids"])
        for key, value in (("treeids", number), ("nodeids", node), ("featureids", 0 if leaf else tree[0]),
                           ("values", 0.0 if leaf else tree[1]), ("modes", "LEAF" if leaf else mode),
                           ("truenodeids", 0), ("falsenodeids", 0)):
            columns[f"nodes_{key}"].append(value)
        if isinstance(tree, list):
            for target, weight in enumerate(tree):
                for key, value in (("treeids", number), ("nodeids", node), ("ids", target), ("weights", weight)):
                    columns[f"target_{key}"].append(value)
        else:
            columns["nodes_truenodeids"][row] = add(number, tree[2])
            columns["nodes_falsenodeids"][row] = add(number, tree[3])
        return node

    for number, tree in enumerate(trees):
        add(number, tree)
    node = helper.make_node("TreeEnsembleRegressor", ["z" if before else "x"], ["y"], domain="ai.onnx.ml",
                            n_targets=outputs, **columns, **attributes)
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, size])
             for name, size in (("x", inputs), ("y", outputs))]
    graph = helper.make_graph([*before, node], "forest", sides[:1], sides[1:])
    return helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)])


def scaler(offset: list[float], scale: list[float]) -> onnx.NodeProto:
    return helper.make_node("Scaler", ["x"], ["z"], domain="ai.onnx.ml", offset=offset, scale=scale)


def random_tree(random: np.random.Generator, inputs: int, outputs: int, depth: int) -> Tree:
    """With thresholds among a few, so that trees share some."""
    if depth == 0 or random.random() < 0.15:
        return [float(np.float32(value)) for value in random.normal(size=outputs)]
    halves = [random_tree(random, inputs, outputs, depth - 1) for _ in range(2)]
    return int(random.integers(inputs)), float(random.integers(1, 8)) / 8, *halves


def random_forest(seed: int, inputs: int = 3, outputs: int = 1, trees: int = 4, depth: int = 3,
                  **attributes: Any) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    return forest_model([random_tree(random, inputs, outputs, depth) for _ in range(trees)], inputs, outputs,
                        **attributes)


def attributes_of(model: onnx.ModelProto) -> dict[str, Any]:
    return {one.name: helper.get_attribute_value(one) for one in model.graph.node[-1].attribute}


def cells(model: onnx.ModelProto, lower: Floats, upper: Floats) -> list[Floats]:
    """Of each input a float32 number of each cell that the box meets, in order; no scaler in front."""
    given = attributes_of(model)
    found = []
    for feature, (low, high) in enumerate(zip(lower, upper, strict=True)):
        thresholds = {np.float32(value) for number, value, mode in zip(
            given["nodes_featureids"], given["nodes_values"], given["nodes_modes"], strict=True)
            if number == feature and mode != b"LEAF"}
        numbers = {np.float32(low), np.float32(high), *thresholds,
                   *(np.nextafter(value, np.float32(np.inf)) for value in thresholds),
                   *(np.nextafter(value, np.float32(-np.inf)) for value in thresholds)}
        found.append(np.array(sorted(float(value) for value in numbers if low <= value <= high)))
    return found


def run(model: onnx.ModelProto | bytes, x: Floats) -> Floats:
    """(m, o) of onnxruntime."""
    session = open_session(model if isinstance(model, bytes) else model.SerializeToString(), optimised=False)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})
    return np.asarray(y, dtype=np.float64).reshape(len(x), -1)


def table(model: onnx.ModelProto, lower: Floats, upper: Floats) -> Floats:
    """Outputs (cells of input 0, ..., o): all values that there are in the box."""
    sides = cells(model, lower, upper)
    return run(model, np.array(list(product(*sides)))).reshape(*map(len, sides), -1)


def rises(values: Floats, feature: int) -> bool:
    """Whether no value along the feature is below the one before; values: as of `table`, of one output."""
    along = np.moveaxis(values, feature, 0)
    return all(bool((after >= before).all()) for before, after in pairwise(along))


def written(folder: Path, model: onnx.ModelProto | bytes, specification: str) -> tuple[Path, Path]:
    """Paths of both files."""
    file, text = folder / "model.onnx", folder / "spec.yaml"
    file.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    text.write_text(specification)
    return file, text
