"""What holds an answer within what its target can be: the file's last nodes, executed, and the same as a network."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.onnx_model import INPUT, build_onnx
from models.export.parity import largest_difference
from models.export.physical_range import Range, held_within, range_layers
from models.verification.checker.chain import read_chain
from models.verification.checker.rounding import kept_limits
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.runtime_session import open_session
from tests.models.verification.networks import random_network

SCALING = FeatureScaling(MinMaxScaling(("a", "b"), (0.0, -5.0), (1.0, 7.0)), MinMaxScaling(("y",), (2.0,), (9.0,)))
FLOAT32_PARITY = 1e-5  # of the scaled target

ENDS = st.tuples(st.none() | st.floats(-20, 4, width=64), st.none() | st.floats(4.5, 30, width=64))


def wild_network(seed: int) -> ReluNetwork:
    """Whose answers go far beyond the target's range on both sides."""
    network = random_network(np.random.default_rng(seed), 2, [8, 8])
    return ReluNetwork((*network.weights[:-1], network.weights[-1] * np.float32(20)), network.biases)


def answers(content: bytes) -> np.ndarray:
    rows = np.random.default_rng(5).uniform([-1.0, -20.0], [2.0, 20.0], (500, 2)).astype(np.float32)
    return open_session(content).run(None, {INPUT: rows})[0][:, 0].astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(ends=ENDS, seed=st.integers(0, 30))
def test_no_executed_answer_is_beyond_an_end(ends: Range, seed: int, dtype: type[np.floating]) -> None:
    content = build_onnx(wild_network(seed), SCALING, "y", {}, dtype, ends)
    low, high = (kept[0] for kept in kept_limits(read_chain(content)))
    found = answers(content)
    assert low <= found.min() and found.max() <= high
    assert ends[0] is None or (low >= ends[0] and found.min() >= ends[0])
    assert ends[1] is None or (high <= ends[1] and found.max() <= ends[1])


@given(ends=ENDS, seed=st.integers(0, 30))
def test_file_and_network_are_held_alike_and_nothing_else_changes(ends: Range, seed: int) -> None:
    network = wild_network(seed)
    content, held = build_onnx(network, SCALING, "y", {}, ends=ends), held_within(network, ends, SCALING.target)
    assert largest_difference(content, held, SCALING, 200, 0) < FLOAT32_PARITY * 20
    low, high = (wall if end is None else end for end, wall in zip(ends, (-np.inf, np.inf), strict=True))
    np.testing.assert_allclose(answers(content), np.clip(answers(build_onnx(network, SCALING, "y", {})), low, high),
                               rtol=1e-5, atol=1e-4)


def test_a_network_without_ends_is_as_it_was() -> None:
    network = wild_network(1)
    assert held_within(network, (None, None), SCALING.target) is network
    assert build_onnx(network, SCALING, "y", {}, ends=(None, None)) == build_onnx(network, SCALING, "y", {})


def test_stored_ends_lie_within_the_range_where_float32_lacks_them() -> None:
    (_, shift), (_, least) = range_layers((0.001, None), 0.0)
    assert least == -shift and 0.001 <= least == float(np.float32(least)) < 0.00100001
    ((_, most), _) = range_layers((None, 0.1), 0.0)
    assert 0.0999999 < most == float(np.float32(most)) <= 0.1


def test_a_range_without_room_is_refused() -> None:
    with pytest.raises(InputError, match=r"must hold several numbers of float32, got \(1\.0, 1\.0\)"):
        range_layers((1.0, 1.0), 1.0)
