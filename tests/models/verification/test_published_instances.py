"""Verdicts on published networks and properties: ACAS Xu (VNN-COMP 2021) and a learned database index (NN4SysBench).

Oracle: the verdicts on which the tools of the competition agree; the runtime, for witnesses; samples, for proofs.
"""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from models.verification.decide import decide
from models.verification.language.vnnlib import read_vnnlib
from models.verification.network.onnx_reader import read_onnx
from models.verification.onnx_verdict import OnnxVerdict
from tests.models.verification.onnx_files import replayed

DATA = Path(os.environ.get("ASSAY_DATA", Path(__file__).parents[4] / "shared" / "data"), "vnnlib")
ACAS, INDEX = DATA / "acasxu", DATA / "lindex"
VERDICTS = {"holds": "PROVED", "violated": "REFUTED"}
# network, property: those of each verdict that take a second or less
INSTANCES = [("1_1", 1), ("2_9", 1), ("1_1", 2), ("1_1", 4), ("2_5", 3), ("4_5", 10), ("1_2", 2), ("5_3", 2),
             ("1_7", 3), ("1_9", 4), ("1_9", 7), ("2_9", 8)]
PROPERTIES = [*(f"lindex_0_{k}.vnnlib" for k in range(10)), *(f"lindex_1_{k}.vnnlib.gz" for k in (0, 3, 9))]


def require(path: Path) -> Path:
    if not path.is_file():
        pytest.skip(f"published instances are not here: {path}")
    return path


def assert_evidence(found: OnnxVerdict, model: Path, claim: Path) -> None:
    """A witness replays inside its box and is unsafe; where there is none, no sampled input is."""
    graph = read_onnx(model).graph
    unsafe = read_vnnlib(claim, graph.inputs, graph.outputs)
    if found.witness is not None:
        ((x, y),) = replayed(model, found.witness)
        (boxes,) = np.nonzero(((x >= unsafe.lower) & (x <= unsafe.upper) | (unsafe.lower == unsafe.upper)).all(axis=1))
        assert (unsafe.violation(boxes, np.repeat(y[None], len(boxes), axis=0)) >= 0).any()
        return
    rng, count = np.random.default_rng(0), len(unsafe.lower)
    box = np.concatenate([np.arange(count)] * 2 + [rng.integers(count, size=5000)])
    share = rng.random((len(box), graph.inputs))
    share[: 2 * count] = np.repeat([[0.0], [1.0]], count, axis=0)
    x = np.clip(unsafe.lower[box] * (1 - share) + unsafe.upper[box] * share, unsafe.lower[box], unsafe.upper[box])
    assert (unsafe.violation(box, graph.value(x)) < 0).all()


@pytest.mark.parametrize(("network", "number"), INSTANCES, ids=[f"{n}-prop_{k}" for n, k in INSTANCES])
def test_verdicts_on_acas_xu_are_those_on_which_the_tools_agree(network, number) -> None:
    model, claim = ACAS / f"ACASXU_run2a_{network}_batch_2000.onnx", ACAS / f"prop_{number}.vnnlib"
    with require(ACAS / "verdicts.csv").open() as file:
        (verdict,) = (row["verdict"] for row in csv.DictReader(file)
                      if (row["network"], row["property"]) == (model.name, claim.name))
    found = decide(require(model), require(claim), 60.0)
    assert found.verdict == VERDICTS[verdict], found.parts[0].reason
    assert_evidence(found, model, claim)


@pytest.mark.parametrize("claim", PROPERTIES)
@pytest.mark.parametrize("network", ["lindex", "lindex_deep"])
def test_every_property_of_the_learned_index_is_decided(network, claim) -> None:
    model, path = require(INDEX / f"{network}.onnx"), require(INDEX / claim)
    found = decide(model, path, 120.0)
    assert found.verdict in ("PROVED", "REFUTED"), found.parts[0].reason
    assert_evidence(found, model, path)


@pytest.mark.parametrize("network", ["lindex", "lindex_deep"])
def test_a_property_of_the_learned_index_that_is_drawn_too_tight_is_refuted(network, tmp_path) -> None:
    model = require(INDEX / f"{network}.onnx")
    walls = np.linspace(0.1, 0.9, 9)
    reached = read_onnx(model).graph.value(walls[:, None] + 0.009)[:, 0]
    cases = "".join(f"(and (>= X_0 {low!r}) (<= X_0 {low + 0.01!r}) (>= Y_0 {value!r}))"
                    for low, value in zip(walls.tolist(), reached.tolist(), strict=True))
    claim = tmp_path / "tight.vnnlib"
    claim.write_text(f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (or {cases}))")
    found = decide(model, claim, 60.0)
    assert found.verdict == "REFUTED"
    assert_evidence(found, model, claim)
