"""Verdicts as evidence."""

import numpy as np

from models.verification.verdict import BoxTree, Status, Verdict, Witness

WITNESS = Witness(1, -1, np.array([0.1, 0.2]), np.array([0.1, 0.7]), 1.5, 1.75, 0.125)
TREE = BoxTree(np.array([0, -1, -1], dtype=np.int16), np.array([0.5, 0.0, 0.0]))


def test_a_verdict_lists_at_most_five_witnesses_and_no_nan() -> None:
    data = Verdict(Status.REFUTED, "found", witnesses=(WITNESS,) * 9).to_json()
    assert len(data["witnesses"]) == 5 and data["lower_bound"] is None and data["leaves"] == 0


def test_a_proof_says_how_many_leaves_it_has() -> None:
    data = Verdict(Status.PROVED, "2 boxes", -1e-12, 1.0, 0.25, 3, tree=TREE).to_json()
    assert data["leaves"] == 2 and data["lower_bound"] == -1e-12
