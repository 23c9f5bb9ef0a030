"""A counterexample counts only if onnxruntime shows it on the exported file, inside the box exactly."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from models.export import parity
from models.export.onnx_model import INPUT, build_onnx
from models.export.parity import replays
from models.tasks.supervised.task import SupervisedTask
from models.training.workload import raw_specification, scaled_specification
from models.verification.attack.falsification import falsify
from models.verification.language.specification import Specification
from models.verification.network.fully_connected import ReluNetwork
from models.verification.verdict import Witness
from tests.models.verification.certified import SCALING, monotone, task_with
from tests.models.verification.networks import monotone_network, network_of, random_network

FALLING = network_of(([[1.0, 0.0, 0.0]], [1.0]), ([[-1.0]], [1.0]))
# the walls of this box are no float32 numbers, inside and outside of the training range
BOX = {"pressure": [0.3, 0.7], "connections": [0.1, 100.1], "temperature": [-3.1, 12.1]}


def exported(network: ReluNetwork) -> bytes:
    return build_onnx(network, SCALING, "latency_ms", {})


def claims(task: SupervisedTask) -> tuple[Specification, Specification]:
    raw = raw_specification(task, "w", SCALING)
    return raw, scaled_specification(raw, SCALING)


@pytest.mark.parametrize("box", [None, BOX], ids=["training range", "own box"])
def test_witnesses_of_ordinary_networks_replay(box: dict | None) -> None:
    raw, scaled = claims(task_with([monotone("pressure"), monotone("temperature", direction="decreasing")], box))
    for seed in range(5):
        network = random_network(np.random.default_rng(seed), 3, (12, 12))
        model = exported(network)
        witnesses = falsify(network, scaled, limit=6)
        assert all(replays(model, witness, SCALING, raw) for witness in witnesses if witness.excess > 1e-3)
    assert witnesses


def test_what_onnxruntime_is_fed_lies_inside_the_raw_box_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[np.ndarray] = []

    class Session:
        def __init__(self, session: onnxruntime.InferenceSession) -> None:
            self.session = session

        def run(self, outputs: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            fed.append(feed[INPUT])
            return self.session.run(outputs, feed)

    original = parity.open_session
    monkeypatch.setattr(parity, "open_session", lambda model: Session(original(model)))
    raw, scaled = claims(task_with([monotone("pressure")], BOX))
    # the witness stands on the walls of the scaled box, which are a little outside of the raw one
    walls = Witness(0, 1, scaled.lower, np.where(np.arange(3) == 0, scaled.upper, scaled.lower), 0.0, 0.0, 1.0)
    assert replays(exported(FALLING), walls, SCALING, raw)
    (pair,) = fed
    assert pair.dtype == np.float32
    assert (pair >= raw.lower).all() and (pair <= raw.upper).all()
    assert (pair[0] <= pair[1]).all() and (pair[0, 1:] == pair[1, 1:]).all()


def test_a_pair_in_the_right_order_does_not_replay() -> None:
    raw, scaled = claims(task_with([monotone("pressure")]))
    network = monotone_network(3, (8, 8), [(0, 1)])
    invented = Witness(0, 1, scaled.lower, np.array([1.0, *scaled.lower[1:]]), 1.0, 0.0, 1.0)
    assert not replays(exported(network), invented, SCALING, raw)
    assert not replays(exported(FALLING), replace(invented, sign=-1), SCALING, raw)


def test_a_fall_within_the_tolerance_does_not_replay() -> None:
    task = task_with([monotone("pressure")])
    raw, scaled = claims(task)
    (witness, *_) = falsify(FALLING, scaled)
    assert replays(exported(FALLING), witness, SCALING, raw)
    assert not replays(exported(FALLING), witness, SCALING, replace(raw, tolerance=1.5))


def test_a_pair_that_float32_cannot_tell_apart_does_not_replay() -> None:
    raw, _ = claims(task_with([monotone("pressure")]))
    low = np.full(3, 0.5)
    high = low.copy()
    high[0] += 1e-12
    assert not replays(exported(FALLING), Witness(0, 1, low, high, 1.0, 0.0, 1.0), SCALING, raw)


def test_a_box_between_two_float32_numbers_has_nothing_to_replay() -> None:
    raw, _ = claims(task_with([monotone("pressure")]))
    thin = replace(raw, lower=np.array([0.5, 1.0, 0.3]), upper=np.array([0.75, 64.0, 0.3]))  # 0.3 is no float32
    witness = Witness(0, 1, np.zeros(3), np.array([1.0, 0.0, 0.0]), 1.0, 0.0, 1.0)
    assert not replays(exported(FALLING), witness, SCALING, thin)
