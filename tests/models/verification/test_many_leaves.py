"""Proofs of more leaves than are checked at a time: every one of them is checked, against its own root."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from models.verification.checker.archive import Rejected
from models.verification.checker.check import LEAVES
from models.verification.language.claim import Part, read_claim
from models.verification.network.onnx_reader import read_onnx
from models.verification.proof_file import _prove, checkable, part_check
from models.verification.search.search_result import Check
from models.verification.verdict import BoxTree
from tests.models.verification.onnx_files import dense_file

COUNT = 2 * LEAVES + 17  # three chunks, the last of few


def comb(walls: np.ndarray) -> BoxTree:
    """[a, b] cut at these walls, from the left, in preorder."""
    return BoxTree(np.array([*[0, -1] * len(walls), -1], dtype=np.int16),
                   np.array([*np.stack([walls, np.zeros(len(walls))], axis=1).ravel(), 0.0]))


def question(folder: Path, most: float) -> tuple[Part, Check]:
    """y = relu(x) - relu(-x) is at most that, over [0, 1]."""
    model = dense_file(folder / "model.onnx", [[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]])
    claim = folder / "claim.yaml"
    claim.write_text(yaml.safe_dump({"box": {"x0": [0, 1]}, "properties": [{"range": {"maximum": most}}]}))
    (part,) = read_claim(claim, read_onnx(model).graph).parts
    return part, part_check(checkable(model), part)


TREE = comb(np.arange(1, COUNT) / COUNT)


def test_every_leaf_is_checked_once_and_in_its_place(tmp_path: Path) -> None:
    part, check = question(tmp_path, 1.5)
    chunks: list[tuple[Any, ...]] = []

    def seen(*boxes: Any) -> Any:
        chunks.append(boxes)
        return check(*boxes)

    assert _prove(part, seen, TREE) == COUNT
    assert [len(one[0]) for one in chunks] == [LEAVES, LEAVES, 17]
    lower, upper, root = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
    np.testing.assert_array_equal(lower[1:, 0], upper[:-1, 0])
    assert (lower[0, 0], upper[-1, 0]) == (part.proved[0][0, 0], part.proved[1][0, 0]) and not root.any()


@pytest.mark.parametrize("leaf", [0, LEAVES - 1, LEAVES, 2 * LEAVES - 1, 2 * LEAVES, COUNT - 1])
def test_one_leaf_that_is_not_proved_is_found_in_any_chunk(tmp_path: Path, leaf: int) -> None:
    part, check = question(tmp_path, 1.5)

    def but_one(lower: Any, upper: Any, root: Any) -> Any:
        holds, margin = check(lower, upper, root)
        here = (lower[:, 0] <= (leaf + 0.5) / COUNT) & (upper[:, 0] >= (leaf + 0.5) / COUNT)
        return holds & ~here, np.where(here, -0.25, margin)

    with pytest.raises(Rejected, match=f"every leaf must be proved, 1 of {COUNT} are not, the worst is 0.25 short"):
        _prove(part, but_one, TREE)


def test_a_claim_that_only_the_last_leaves_break_is_refused(tmp_path: Path) -> None:
    part, check = question(tmp_path, 1.0 - 3.5 / COUNT)
    with pytest.raises(Rejected, match=f"every leaf must be proved, 4 of {COUNT} are not"):
        _prove(part, check, TREE)


@pytest.mark.parametrize("broken", [None, 10, LEAVES + 10, 2 * LEAVES + 10])
def test_leaves_of_many_roots_are_held_against_their_own(tmp_path: Path, broken: int | None) -> None:
    """One box each, each with a claim of its own; one claim of a later chunk is false."""
    model = dense_file(tmp_path / "model.onnx", [[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]])
    above = [1e-3 if k != broken else -1e-3 for k in range(COUNT)]
    boxes = "\n".join(f"(and (>= X_0 {k / COUNT!r}) (<= X_0 {(k + 1) / COUNT!r}) (>= Y_0 "
                      f"{(k + 1) / COUNT + over!r}))" for k, over in enumerate(above))
    claim = tmp_path / "claim.vnnlib"
    claim.write_text(f"(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (or {boxes}))")
    (part,) = read_claim(claim, read_onnx(model).graph).parts
    check, tree = part_check(checkable(model), part), BoxTree(np.full(COUNT, -1, dtype=np.int16), np.zeros(COUNT))
    if broken is None:
        assert _prove(part, check, tree) == COUNT
    else:
        with pytest.raises(Rejected, match=f"every leaf must be proved, 1 of {COUNT} are not"):
            _prove(part, check, tree)
