"""What the checker allows a network to fall by over the whole box: as much as the specification says, in the output's
unit, whatever the width of the box in the network's scaled coordinates.

A tolerance that is a slope in one of the two units and is read in the other is too much by the width of the box.
"""

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from benchmarks.verification.tampered_proof import Proof
from tests.models.verification.certified import SCALING, monotone, prove, task_with, violation
from tests.models.verification.networks import network_of

# Steps that halve the interval in which the steepest fall lies that the specification allows.
HALVINGS = 40


def with_fall(proof: Proof, fall: float) -> Proof:
    """The same network with the slope -`fall` in temperature, scaled units; every digest is made to fit again."""
    model = proof.graph
    (weight,) = (item for item in model.graph.initializer if item.name == "weight_1")
    weight.CopyFrom(numpy_helper.from_array(np.array([[-fall, 1.0]], np.float32), weight.name))
    return proof.with_graph(model).rehashed()


def steepest_allowed_fall(proof: Proof) -> float:
    """By brute force over pairs of points, in raw units."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if violation(with_fall(proof, middle)) > 0 else (middle, high)
    return low


@pytest.fixture(scope="module", params=[1 / 8, 1.0, 4.0, 32.0])
def width(request: pytest.FixtureRequest) -> float:
    """Of the box of temperature, in ranges of the scaling."""
    return float(request.param)


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory, width: float) -> Proof:
    """A network that rises along temperature in a box of this width, through a neuron that is always active."""
    low, high = SCALING.features.minimum[2], SCALING.features.maximum[2]
    network = network_of(([[0, 0, 1], [1, 1, 0]], [1.0, 0.5]), ([[0.25, 1.0]], [0.0]))
    task = task_with([monotone("temperature")], box={"temperature": [low, low + width * (high - low)]})
    made = prove(tmp_path_factory.mktemp("proof"), network, task)
    assert made.claim["box"]["temperature"][1] == pytest.approx(low + width * (high - low))
    return made


@pytest.mark.parametrize("share", [1.02, 2.0, 8.0, 32.0])
def test_a_network_that_falls_by_more_than_is_allowed_over_its_box_is_refused(
        proof: Proof, tmp_path: Path, share: float) -> None:
    falling = with_fall(proof, share * steepest_allowed_fall(proof))
    assert violation(falling) > 0
    result = falling.check(tmp_path)
    assert not result.accepted and "every leaf must be proved" in result.reason


@pytest.mark.parametrize("share", [0.1, 0.98])
def test_a_network_that_falls_by_less_than_is_allowed_over_its_box_is_accepted(
        proof: Proof, tmp_path: Path, share: float) -> None:
    falling = with_fall(proof, share * steepest_allowed_fall(proof))
    assert violation(falling) <= 0
    result = falling.check(tmp_path)
    assert result.accepted, result.reason
