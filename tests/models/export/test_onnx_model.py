"""The ONNX file: it runs in onnxruntime, it takes raw units, and its weights are the verified ones bit for bit."""


import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from feature_store.errors import RefusedError
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.onnx_model import INPUT, IR_VERSION, OPSET, build_onnx, require_same_weights
from models.export.parity import largest_difference, one_row_latency_us
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import read_chain
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.runtime_session import open_session
from tests.models.verification.certified import SCALING, evaluate_graph
from tests.models.verification.networks import random_network

relaxed = settings(max_examples=20, deadline=None)
# float32 execution at the paper's sizes, in shares of the output range
FLOAT32_PARITY = 1e-5
METADATA = {"task": "performance", "workload": "redis", "code_version": "abc", "data_version": "def"}


def exported(network: ReluNetwork, scaling: FeatureScaling = SCALING) -> bytes:
    return build_onnx(network, scaling, "latency_ms", METADATA)


@pytest.fixture(scope="module")
def network() -> ReluNetwork:
    return random_network(np.random.default_rng(0), 3, (9, 7))


def test_the_file_states_its_opset_names_shapes_and_metadata(network: ReluNetwork) -> None:
    model = onnx.load_model_from_string(exported(network))
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == IR_VERSION
    assert [(item.domain, item.version) for item in model.opset_import] == [("", OPSET)]
    assert {item.key: item.value for item in model.metadata_props} == METADATA
    assert [item.name for item in model.graph.input] == [INPUT]
    assert [item.name for item in model.graph.output] == ["latency_ms"]
    assert [node.op_type for node in model.graph.node] == [
        "Sub", "Mul", "Gemm", "Relu", "Gemm", "Relu", "Gemm", "Mul", "Add"]


def test_onnxruntime_takes_any_number_of_rows_in_raw_units(network: ReluNetwork) -> None:
    session = open_session(exported(network))
    (given_input,), (output,) = session.get_inputs(), session.get_outputs()
    assert (given_input.name, given_input.type, given_input.shape) == (INPUT, "tensor(float)", ["batch", 3])
    assert (output.name, output.shape) == ("latency_ms", ["batch", 1])
    rng = np.random.default_rng(1)
    for rows in (1, 2, 3, 100):
        unit = rng.random((rows, 3))
        raw = SCALING.features.unscale(unit)
        (found,) = session.run(None, {INPUT: raw.astype(np.float32)})
        expected = SCALING.target.unscale(network.value(unit)[:, None])
        span = SCALING.target.maximum[0] - SCALING.target.minimum[0]
        assert found.shape == (rows, 1)
        assert np.abs(found - expected).max() < 10 * FLOAT32_PARITY * span


@relaxed
@given(seed=st.integers(0, 2**32 - 1), hidden=st.lists(st.integers(1, 20), min_size=1, max_size=4),
       inputs=st.integers(1, 8))
def test_the_weights_read_back_are_the_verified_ones_bit_for_bit(seed, hidden, inputs) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, inputs, hidden, scale=10.0 ** rng.uniform(-8, 8))
    low = rng.normal(size=inputs) * 10.0 ** rng.uniform(-3, 6)
    scaling = FeatureScaling(
        MinMaxScaling(tuple(f"x{i}" for i in range(inputs)), tuple(low), tuple(low + rng.uniform(0.1, 9, inputs))),
        MinMaxScaling(("y",), (1.5,), (2.25,)))
    chain, layers = read_chain(exported(network, scaling)), len(network.weights)
    first = len(chain.weights) - 1 - layers  # behind the scaling, before the gain
    for k, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True), start=first):
        assert chain.weights[k].astype(np.float32).tobytes() == weight.tobytes()
        assert chain.biases[k].astype(np.float32).tobytes() == bias.tobytes()
    offset, factor, gain = -chain.biases[0], np.diag(chain.weights[1]), float(chain.weights[-1].item())
    assert offset.tolist() == low.astype(np.float32).tolist() and chain.biases[-1].tolist() == [1.5]
    assert (factor > 0).all() and gain == 0.75
    # what the graph computes node by node is that network between its two scalings
    x = low + rng.random((20, inputs))
    expected = gain * network.value((x - offset) * factor) + 1.5
    size = 1e-9 * (1 + np.abs(expected).max())
    np.testing.assert_allclose(evaluate_graph(exported(network, scaling), x)[:, 0], expected, rtol=0, atol=size)


def test_the_same_network_gives_the_same_bytes(network: ReluNetwork) -> None:
    assert exported(network) == exported(network)


def test_the_file_of_the_network_itself_passes(network: ReluNetwork) -> None:
    require_same_weights(exported(network), network)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("kind", ["weights", "biases"])
def test_one_weight_changed_by_one_unit_in_the_last_place_is_refused(
    network: ReluNetwork, layer: int, kind: str,
) -> None:
    parts = {"weights": list(network.weights), "biases": list(network.biases)}
    other = parts[kind][layer].copy()
    other.flat[-1] = np.nextafter(other.flat[-1], np.float32(np.inf))
    parts[kind][layer] = other
    with pytest.raises(RefusedError, match="weights in the file must be the verified ones"):
        require_same_weights(exported(network), ReluNetwork(tuple(parts["weights"]), tuple(parts["biases"])))


def test_a_network_of_another_depth_is_refused(network: ReluNetwork) -> None:
    with pytest.raises(RefusedError, match="weights in the file must be the verified ones"):
        require_same_weights(exported(random_network(np.random.default_rng(0), 3, (9, 7, 5))), network)


def test_a_range_that_float32_cannot_scale_makes_no_model(network: ReluNetwork) -> None:
    # 1 / range overflows float32
    narrow = FeatureScaling(MinMaxScaling(SCALING.features.names, (0.0, 1.0, 0.0), (1e-42, 2.0, 1.0)), SCALING.target)
    with np.errstate(over="ignore"):
        content = exported(network, narrow)
    with pytest.raises(Rejected, match="weights must be finite"):
        require_same_weights(content, network)


# --- parity, latency ---------------------------------------------------------------------------------------


def test_parity_of_the_file_with_torch_is_float32s_rounding(network: ReluNetwork) -> None:
    difference = largest_difference(exported(network), network, SCALING, points=10_000, seed=0)
    assert 0 <= difference < FLOAT32_PARITY
    assert largest_difference(exported(network), network, SCALING, points=10_000, seed=0) == difference


@pytest.mark.parametrize("shift", [0.25, -0.25])
def test_parity_shows_a_model_that_is_another(network: ReluNetwork, shift: float) -> None:
    """Whether it answers more or less than the network."""
    model = onnx.load_model_from_string(exported(network))
    bias = next(item for item in model.graph.initializer if item.name == "bias_2")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(shift), "bias_2"))
    difference = largest_difference(model.SerializeToString(), network, SCALING, points=100, seed=0)
    assert difference == pytest.approx(0.25, abs=FLOAT32_PARITY)


def test_parity_holds_at_the_papers_sizes() -> None:
    network = random_network(np.random.default_rng(0), 3, (300, 300, 300))
    assert largest_difference(exported(network), network, SCALING, points=2000, seed=1) < 10 * FLOAT32_PARITY


def test_latency_is_a_positive_number_of_microseconds(network: ReluNetwork) -> None:
    row = SCALING.features.unscale(np.full((1, 3), 0.5))[0]
    # wide: a loaded machine
    assert 1 < one_row_latency_us(exported(network), row, repeats=20) < 1e6
