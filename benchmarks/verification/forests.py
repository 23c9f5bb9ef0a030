"""How large a forest is decided, and how fast: scikit-learn's trees, forests and boosting, four questions each.

    python -m benchmarks verification-forests [--timeout 60] [--seeds 3]

Trained on 2,000 rows of Friedman's first function (Multivariate Adaptive Regression Splines, 1991, equation 61: five
inputs in 0..1, of which the fourth adds ten times itself; noise 1), exported by skl2onnx, decided through what
`assay verify` calls:

    monotone  does the output rise in the fourth input, everywhere?
    maximum   is it at most 5 % of its range above the largest output of 100,000 random inputs?
    tight     the same for 1 %
    robust    within 0.01 of ten random inputs, does it change by at most a fifth of its range?

The peer is Veritas (Devos, Meert, Davis, Versatile Verification of Tree Ensembles, 2021; pip install dtai-veritas),
which bounds the largest output: asked the second and third question of the trees as they stand in the file, and told
to give up what stays below the limit. Where it is not installed its cells are empty. Seconds are those of a decision,
reading the files and comparing with onnxruntime included, and of the search alone; of Veritas those of its search.
Run on an idle machine.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS

OUTPUT = RESULTS / "verification_forests.json"
FORMAT = "assay-verification-forests/1"
QUESTIONS = ("monotone", "maximum", "tight", "robust")
INPUTS, RISING, ROWS = 5, 3, 2000
NAMES = [f"x{number}" for number in range(INPUTS)]
POINTS, NEAR, CHANGE = 10, 0.01, 0.2
ABOVE = {"maximum": 0.05, "tight": 0.01}


def models(seed: int) -> Mapping[str, Callable[[], Any]]:
    """By what they are called in the table."""
    from sklearn import ensemble, tree

    order = [int(number == RISING) for number in range(INPUTS)]
    return {
        "tree of depth 10": lambda: tree.DecisionTreeRegressor(max_depth=10, random_state=seed),
        "25 trees of depth 6": lambda: ensemble.RandomForestRegressor(25, max_depth=6, random_state=seed),
        "100 trees of depth 8": lambda: ensemble.RandomForestRegressor(100, max_depth=8, random_state=seed),
        "boosting, 100 trees of depth 3": lambda: ensemble.GradientBoostingRegressor(random_state=seed),
        "boosting, 100 trees of 31 leaves": lambda: ensemble.HistGradientBoostingRegressor(random_state=seed),
        "the same, told to rise": lambda: ensemble.HistGradientBoostingRegressor(
            random_state=seed, monotonic_cst=order),
        "500 trees, told to rise": lambda: ensemble.HistGradientBoostingRegressor(
            max_iter=500, random_state=seed, monotonic_cst=order),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of a question; default: %(default)s")
    parser.add_argument("--seeds", type=int, default=3, help="forests of each kind; default: %(default)s")


def run(options: argparse.Namespace) -> None:
    """Decides what is not in the file yet."""
    code = code_digest("models.verification.trees.decide_forest", "models.verification.trees")
    entries = Entries(options.output, FORMAT, lambda one: (*(list(table).index(one[key]) for key, table in (
        ("model", models(0)), ("question", QUESTIONS))), one["seed"]), made_by(code))
    entries.content |= {"machine": describe_machine(), "timeout_s": options.timeout}
    for seed in range(options.seeds):
        for number, (name, make) in enumerate(models(seed).items()):
            if all(entries.has((number, question, seed)) for question in range(len(QUESTIONS))):
                continue
            content, range_of = _trained(make(), seed)
            for place, question in enumerate(QUESTIONS):
                if not entries.has((number, place, seed)):
                    entry = {"model": name, "question": question, "seed": seed, "code": code, "at": now_utc(),
                             "load_average": load_average(), **_decided(content, question, range_of, seed,
                                                                        options.timeout)}
                    print(f"{name}, {question}, seed {seed}: {entry['verdict']} {entry['seconds']:.2f} s"
                          + (f", Veritas {entry['peer']['seconds']:.2f} s" if entry["peer"] else ""), file=sys.stderr)
                    entries.add(entry)


def _trained(model: Any, seed: int) -> tuple[bytes, tuple[float, float]]:
    """The file, and least and largest output of random inputs."""
    from skl2onnx import to_onnx
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(ROWS, INPUTS, noise=1.0, random_state=seed)
    model.fit(x.astype(np.float32), y)
    found = model.predict(np.random.default_rng(seed).random((100_000, INPUTS)).astype(np.float32))
    return to_onnx(model, x[:1].astype(np.float32)).SerializeToString(), (float(found.min()), float(found.max()))


def _decided(content: bytes, question: str, reach: tuple[float, float], seed: int, timeout: float) -> dict[str, Any]:
    from models.verification.decide import decide
    from models.verification.trees.forest_reader import read_forest

    least, most = reach
    limit = most + ABOVE.get(question, 0.0) * (most - least)
    points = np.random.default_rng(seed).random((POINTS, INPUTS)).round(3).tolist()
    properties = {
        "monotone": f"monotone: {{features: [{NAMES[RISING]}], direction: increasing}}",
        **dict.fromkeys(ABOVE, f"range: {{output: y, maximum: {limit!r}}}"),
        "robust": f"robust: {{points: {points}, radius: {NEAR}, change: {CHANGE * (most - least)!r}}}"}
    with tempfile.TemporaryDirectory() as folder:
        file, text = Path(folder, "forest.onnx"), Path(folder, "spec.yaml")
        file.write_bytes(content)
        box = ", ".join(f"{name}: [0, 1]" for name in NAMES)
        text.write_text(f"features: [{', '.join(NAMES)}]\noutputs: [y]\nbox: {{{box}}}\n"
                        f"properties: [{properties[question]}]\n")
        began = time.perf_counter()
        found = decide(file, text, timeout)
        seconds = time.perf_counter() - began
    forest = read_forest(content)
    return {"trees": len(forest.starts), "leaves": len(forest.tree), "verdict": found.verdict,
            "seconds": round(seconds, 4), "search_seconds": round(sum(part.seconds for part in found.parts), 5),
            "boxes": sum(part.boxes for part in found.parts),
            "peer": _veritas(content, limit, timeout) if question in ABOVE else None}


def _veritas(content: bytes, limit: float, timeout: float) -> dict[str, Any] | None:
    """What Veritas says of the largest output; None where it is not installed."""
    if importlib.util.find_spec("veritas") is None:
        return None
    import onnx
    import veritas

    (node,) = [one for one in onnx.load_model_from_string(content).graph.node if one.op_type == "TreeEnsembleRegressor"]
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    count = len(set(given["nodes_treeids"])) if given.get("aggregate_function") == b"AVERAGE" else 1
    row = {key: number for number, key in enumerate(zip(given["nodes_treeids"], given["nodes_nodeids"], strict=True))}
    value = dict(zip(zip(given["target_treeids"], given["target_nodeids"], strict=True), given["target_weights"],
                     strict=True))
    forest = veritas.AddTree(1, veritas.AddTreeType.REGR)
    forest.set_base_score(0, float(given.get("base_values", [0.0])[0]))
    for number in dict.fromkeys(given["nodes_treeids"]):
        tree = forest.add_tree()
        pending = [(min(node for tree_of, node in row if tree_of == number), tree.root())]
        while pending:
            name, at = pending.pop()
            place = row[number, name]
            if given["nodes_modes"][place] == b"LEAF":
                tree.set_leaf_value(at, 0, value[number, name] / count)
                continue
            # it goes left below a number, so at most the threshold is below the next one
            tree.split(at, given["nodes_featureids"][place],
                       float(np.nextafter(np.float32(given["nodes_values"][place]), np.float32(np.inf))))
            pending += [(given["nodes_truenodeids"][place], tree.left(at)),
                        (given["nodes_falsenodeids"][place], tree.right(at))]
    began = time.perf_counter()
    configuration = veritas.Config(veritas.HeuristicType.MAX_OUTPUT)
    configuration.ignore_state_when_worse_than = limit
    search = configuration.get_search(forest, [veritas.Interval(0.0, float(np.nextafter(1.0, 2.0)))] * INPUTS)
    verdict = "TIMEOUT"
    while (spent := time.perf_counter() - began) < timeout:
        stopped = search.step_for(min(0.05, timeout - spent), 100)
        if search.num_solutions() and search.get_solution(0).output > limit:
            verdict = "REFUTED"
        elif stopped in (veritas.StopReason.NO_MORE_OPEN, veritas.StopReason.OPTIMAL):
            verdict = "PROVED"
        elif stopped == veritas.StopReason.OUT_OF_MEMORY:
            verdict = "out of memory"
        else:
            continue
        break
    return {"name": "Veritas", "version": veritas.__version__, "verdict": verdict,
            "seconds": round(time.perf_counter() - began, 5)}
