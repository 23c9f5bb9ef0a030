"""The first look: what it decides is right, the search says the same, and torch is not needed for it."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from models.verification import decide_network
from models.verification.checker.chain import read_chain
from models.verification.decide import decide
from models.verification.first_look import FirstLook, _sliced, agrees
from models.verification.network.onnx_reader import read_onnx
from models.verification.verdict import Status
from tests.models.verification.onnx_files import dense_file, dense_model, replayed

ROOT = Path(__file__).parents[3]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from pipelines.command_line import main; main()"
BOX = {"box": {"x0": [0.7, 1.3], "x1": [-0.1, 2]}}
RULES: dict[str, list[Any]] = {
    "monotone": [{"monotone": {"features": ["x0", "x1"]}}], "falling": [{"monotone": {"features": ["x1"], "direction":
                                                                                    "decreasing"}}],
    "range": [{"range": {"minimum": -1, "maximum": 4}}], "out-of-range": [{"range": {"maximum": 3}}]}


@pytest.mark.parametrize(("rule", "code"), [("monotone", 0), ("falling", 1), ("range", 0), ("out-of-range", 1)])
def test_one_box_or_a_few_points_decide_without_torch(tmp_path: Path, rule: str, code: int) -> None:
    dense_file(tmp_path / "m.onnx", [[[1, 0], [0, 1]], [[1, 1]]], [[0.1, 0.1], [0]])
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(BOX | {"properties": RULES[rule]}))
    command = [sys.executable, "-c", WITHOUT_TORCH, "verify", "m.onnx", "-s", "s.yaml", "--certificate", "p.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == code, done.stdout + done.stderr
    if code == 0:
        check = [*command[:3], "check", "p.npz", "--model", "m.onnx", "-s", "s.yaml"]
        checked = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, timeout=120,
                                 env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert checked.returncode == 0 and checked.stdout.startswith("accepted"), checked.stderr


@pytest.mark.parametrize("seed", range(12))
def test_the_search_never_says_the_opposite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(5, 2)), rng.normal(size=(1, 5))]
    if seed % 3 == 0:
        weights = [np.abs(weight) for weight in weights]
    model = dense_file(tmp_path / "m.onnx", weights, [rng.normal(size=5), [0.0]])
    limit = float(rng.normal())
    rules = [[{"monotone": {"features": ["x0", "x1"]}}], [{"range": {"maximum": limit}}],
             [{"monotone": {"features": ["x0"]}}]]
    claim = {**BOX, "properties": rules[seed % 3]}
    if seed % 3 == 2:
        claim = {"box": {"x1": [0, 1]}, "inputs": {"x0": {"values": [0, 0.5, 3]}}, "properties": rules[2]}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(claim))
    first = decide(model, tmp_path / "s.yaml", 20.0)
    monkeypatch.setattr(decide_network.NetworkDecider, "_look", lambda self, part: None)
    second = decide(model, tmp_path / "s.yaml", 20.0)
    assert first.status is second.status and first.status in (Status.PROVED, Status.REFUTED)
    if first.witness is not None:
        replayed(model, first.witness)


def test_a_proof_about_a_network_that_is_read_in_two_ways_is_left_to_the_search(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[1, 0], [0, 1]], [[1, 1]]], [[0.1, 0.1], [0]])
    other = dense_file(tmp_path / "n.onnx", [[[1, 0], [0, 1]], [[1, 1.0001]]], [[0.1, 0.1], [0]])
    graph, walls = read_onnx(model).graph, (np.array([[0.0, 1.0]]), np.array([[1.0, 2.0]]))
    assert agrees(read_chain(model.read_bytes()), graph, *walls)
    assert not agrees(read_chain(other.read_bytes()), graph, *walls)


def test_points_of_the_first_look_lie_in_their_boxes_as_float32() -> None:
    graph = read_onnx(bytes(dense_model([[[1, 0], [0, 1]], [[1, 1]]], [[0.1, 0.1], [0]]).SerializeToString())).graph
    lower, upper = np.array([[0.7, -0.1], [0.1, 0.1]]), np.array([[0.8, 0.3], [0.1, 0.30000001]])
    for x, box in FirstLook(graph, np.array([[0.75, 0.0], [9.0, 9.0]]), 0)._batches(lower, upper, 64):
        assert ((lower[box] <= x) & (x <= upper[box])).all()
        wide = lower[box] < upper[box]
        assert (x[wide] == x[wide].astype(np.float32)).mean() > 0.9


def test_slices_cover_the_root_and_prove_nothing_that_is_not_so(tmp_path: Path) -> None:
    low, high, asked = np.array([-3.0, 1.0, 0.0]), np.array([5.0, 1.0, 9.0]), []

    def check(lower: Any, upper: Any, root: Any) -> Any:
        assert (root == 7).all() and (lower <= upper).all()
        asked.append(len(root))
        width = upper[:, 2] - lower[:, 2]
        return width <= 1.2, 1.2 - width  # thin ones across the last input

    tree, margin = _sliced(check, low, high, 7, 100, 100) or ([], 0.0)
    leaves, stack = [], [(0.0, 9.0)]
    for side, wall in tree:
        begin, end = stack.pop()
        assert side in (2, -1) and (side < 0 or begin < wall < end)
        if side < 0:
            leaves.append((begin, end))
        else:
            stack += [(wall, end), (begin, wall)]
    assert not stack and leaves[0][0] == 0.0 and leaves[-1][1] == 9.0
    assert all(left[1] == right[0] for left, right in pairwise(leaves)) and max(b - a for a, b in leaves) <= 1.2
    assert margin == pytest.approx(1.2 - 9 / 8) and sum(asked) < 100
    assert _sliced(check, low, high, 7, 5, 100) is None, "no input is left that may be tried"
    assert _sliced(check, low, high, 7, 100, 6) is None, "more boxes than it may take"
    # the thin slices hold, and nothing in between ever does: an end, with walls that are apart
    thin = lambda lower, upper, root: ((upper - lower)[:, 2] == 9 / 128, lower[:, 2])  # noqa: E731
    assert _sliced(thin, low, high, 7, 100, 10_000) is None
    never = lambda lower, upper, root: (np.zeros(len(root), bool), -np.ones(len(root)))  # noqa: E731
    assert _sliced(never, low, high, 7, 100, 100) is None
