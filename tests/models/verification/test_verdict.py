"""Verdicts survive the way through a file."""

import json
from pathlib import Path

import numpy as np
import pytest

from models.verification.verdict import BoxTree, Status, Verdict, Witness, restore_verdict

WITNESS = Witness(1, -1, np.array([0.1, 0.2]), np.array([0.1, 0.7]), 1.5, 1.75, 0.125)
TREE = BoxTree(np.array([0, -1, -1], dtype=np.int16), np.array([0.5, 0.0, 0.0]))


def restored(verdict: Verdict, folder: Path) -> Verdict:
    path = None
    if verdict.tree is not None:
        path = folder / "tree.npz"
        np.savez(path, split_dimension=verdict.tree.split_dimension, split_value=verdict.tree.split_value)
    return restore_verdict(json.loads(json.dumps(verdict.to_json(), allow_nan=False)), path)


@pytest.mark.parametrize("verdict", [
    Verdict(Status.PROVED, "2 boxes", -1e-12, 1.0, 0.25, 3, tree=TREE),
    Verdict(Status.REFUTED, "found", witnesses=(WITNESS,)),
    Verdict(Status.TIMEOUT, "spent", -0.5, 0.75, 60.0, 1000),
    Verdict(Status.UNKNOWN, "none"),
], ids=lambda verdict: str(verdict.status))
def test_a_verdict_comes_back_from_its_file_as_it_was(verdict: Verdict, tmp_path: Path) -> None:
    found = restored(verdict, tmp_path)
    assert found.status is verdict.status
    assert json.dumps(found.to_json()) == json.dumps(verdict.to_json())
    if verdict.tree is not None:
        assert found.tree is not None and found.tree.leaves == 2
        np.testing.assert_array_equal(found.tree.split_dimension, verdict.tree.split_dimension)
    for a, b in zip(found.witnesses, verdict.witnesses, strict=True):
        np.testing.assert_array_equal(a.low, b.low)
        np.testing.assert_array_equal(a.high, b.high)


def test_a_verdict_lists_at_most_five_witnesses_and_no_nan() -> None:
    data = Verdict(Status.REFUTED, "found", witnesses=(WITNESS,) * 9).to_json()
    assert len(data["witnesses"]) == 5 and data["lower_bound"] is None and data["leaves"] == 0


def test_the_same_findings_may_stand_under_another_status() -> None:
    proved = Verdict(Status.PROVED, "2 boxes", -1e-12, 1.0, 0.25, 3, tree=TREE)
    other = proved.because(Status.UNKNOWN, "refused")
    assert (other.status, other.reason) == (Status.UNKNOWN, "refused")
    assert other.boxes == 3 and other.tree is TREE and proved.status is Status.PROVED
