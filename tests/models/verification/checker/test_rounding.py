"""What execution in floating point can do to a proof: bounded for every order of summation, refused where it matters.

The oracles are exact rational arithmetic, sums in random orders in float32, and onnxruntime on the file itself.
"""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.onnx_model import INPUT, build_onnx, executable_onnx
from models.export.product import MOST_ROUNDING
from models.verification.checker.chain import read_chain
from models.verification.checker.rounding import Arithmetic, chain_error, execution_error, kept_order
from models.verification.execution import within_limits
from models.verification.language.properties import OutputRange, Robustness
from models.verification.language.specification import Specification
from models.verification.language.specification_language import parse_specification
from models.verification.network.fully_connected import ReluNetwork
from tests.models.verification.certified import SCALING, monotone, network_with_many_leaves, prove, task_with
from tests.models.verification.networks import monotone_network, random_network

FLOAT32, FLOAT64 = Arithmetic.of(np.dtype(np.float32)), Arithmetic.of(np.dtype(np.float64))
UNIT_SCALING = FeatureScaling(MinMaxScaling(("a", "b"), (0.0, 0.0), (1.0, 1.0)), MinMaxScaling(("y",), (0.0,), (1.0,)))


def summed(terms: np.ndarray, rng: np.random.Generator) -> np.float32:
    """A float32 sum in an order of its own: pairs are drawn at random until one number is left."""
    numbers = list(terms.astype(np.float32))
    while len(numbers) > 1:
        a = numbers.pop(int(rng.integers(len(numbers))))
        b = numbers.pop(int(rng.integers(len(numbers))))
        numbers.append(np.float32(a + b))
    return numbers[0]


def executed(network: ReluNetwork, x: np.ndarray, rng: np.random.Generator) -> float:
    """The network in float32, every sum in another order."""
    v = x.astype(np.float32)
    for k, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        v = np.array([summed(np.append(row * v, b), rng) for row, b in zip(weight, bias, strict=True)])
        v = np.maximum(v, 0) if k < len(network.weights) - 1 else v
    return float(v[0])


def exact(network: ReluNetwork, x: np.ndarray) -> Fraction:
    v = [Fraction(float(value)) for value in x]
    for k, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        v = [sum((Fraction(float(w)) * a for w, a in zip(row, v, strict=True)), Fraction(float(b)))
             for row, b in zip(weight, bias, strict=True)]
        v = [max(a, Fraction(0)) for a in v] if k < len(network.weights) - 1 else v
    return v[0]


def error_of(network: ReluNetwork, lower: np.ndarray, upper: np.ndarray, arithmetic: Arithmetic = FLOAT32) -> float:
    weights, biases = ([a.astype(float) for a in arrays] for arrays in (network.weights, network.biases))
    return float(execution_error(weights, biases, lower, upper, [True] * (len(weights) - 1), arithmetic)[0])


@given(seed=st.integers(0, 2**32 - 1), hidden=st.lists(st.integers(1, 6), min_size=1, max_size=3),
       magnitude=st.sampled_from([-30, -8, 0, 4]))
def test_no_order_of_summation_leaves_the_bound(seed: int, hidden: list[int], magnitude: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, 2, hidden, scale=10.0 ** (rng.uniform(-1, 1) + magnitude / len(hidden)))
    lower = rng.normal(size=2).astype(np.float32).astype(float)
    upper = (lower + rng.random(2)).astype(np.float32).astype(float)
    bound = error_of(network, lower, upper)
    for x in (lower + (upper - lower) * rng.random((6, 2))).astype(np.float32).clip(lower, upper).astype(np.float32):
        off = abs(Fraction(executed(network, x, rng)) - exact(network, x))
        assert off <= Fraction(bound)


def test_the_bound_is_of_the_size_of_what_it_bounds() -> None:
    # one product, one sum: at most two roundings of numbers of at most 3, and the bound's own g(2)
    network = ReluNetwork((np.float32([[1.0]]), np.float32([[1.0]])), (np.float32([2.0]), np.float32([0.0])))
    bound = error_of(network, np.zeros(1), np.ones(1))
    assert 2 * 3 * FLOAT32.unit <= bound <= 6 * 3 * FLOAT32.unit
    assert error_of(network, np.zeros(1), np.ones(1), FLOAT64) < 1e-8 * bound


def test_what_may_overflow_has_no_bound() -> None:
    network = ReluNetwork((np.float32([[1e30]]), np.float32([[1e30]])), (np.float32([0]), np.float32([0])))
    assert error_of(network, np.zeros(1), np.ones(1)) == np.inf
    content = build_onnx(network, FeatureScaling(MinMaxScaling(("a",), (0.0,), (1.0,)),
                                                 MinMaxScaling(("y",), (0.0,), (1.0,))), "y", {})
    assert chain_error(read_chain(content), np.zeros(1), np.ones(1)).tolist() == [np.inf]
    assert not within_limits(content, orders(("a",), "a"))


@pytest.mark.parametrize(("last", "rising", "falling"), [
    ([1.0, 1.0], False, False), ([1.0, -1.0], True, False), ([-1.0, 1.0], False, True), ([1.0, 0.0], True, False),
    ([0.0, 0.0], True, True)])
def test_an_order_is_kept_where_every_path_has_its_sign(last: list[float], rising: bool, falling: bool) -> None:
    weights = [np.array([[2.0, 1.0], [-3.0, 1.0]]), np.array([last])]
    assert kept_order(weights, 0, 1).tolist() == [rising]
    assert kept_order(weights, 0, -1).tolist() == [falling]


@pytest.mark.parametrize("wide", [16, 300])
def test_a_network_of_one_sign_never_falls_as_it_is_executed(wide: int) -> None:
    network = monotone_network(2, (wide, wide), [(0, 1)], seed=1)
    content = build_onnx(network, UNIT_SCALING, "y", {})
    assert within_limits(content, orders(("a", "b"), "a", rounding=0.0))
    assert kept_order(read_chain(content).weights, 0, 1).all()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for start in rng.random(200):  # neighbouring float32 numbers: rounding is all that could turn the order round
        low = np.float32(start)
        pair = [np.float32([[value, 0.5]]) for value in (low, np.nextafter(low, np.float32(2)))]
        a, b = (float(session.run(None, {INPUT: x})[0].item()) for x in pair)
        assert a <= b


def cancelling(size: float) -> ReluNetwork:
    """size a - (size - 1) a for an input a in [0, 1]: about a, from two large numbers."""
    return ReluNetwork((np.float32([[0.7, 0.0], [0.3, 0.0]]), np.float32([[size / 0.7, (1 - size) / 0.3]])),
                       (np.float32([0.0, 0.0]), np.float32([0.0])))


def orders(names: tuple[str, ...], feature: str, rounding: float = MOST_ROUNDING) -> Specification:
    data = {"properties": [{"monotone": {"features": [feature], "direction": "increasing"}}], "tolerance": 1e-4}
    found = parse_specification(data, names, dict.fromkeys(names, (0.0, 1.0)), "here")
    return replace(found, rounding={0: rounding})


@pytest.mark.parametrize("size", [1000.0, 3e6])
def test_weights_that_cancel_fall_in_float32_and_are_stored_in_float64(size: float) -> None:
    network, span = cancelling(size), 1.0
    narrow = build_onnx(network, UNIT_SCALING, "y", {})
    points = np.linspace(0, 1, 20_001, dtype=np.float32)
    rows = np.stack([points, 0 * points], axis=1)

    def fall(content: bytes) -> float:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        y = np.array([session.run(None, {INPUT: row[None]})[0].item() for row in rows])
        return float((np.maximum.accumulate(y) - y).max())

    bound = 2 * float(chain_error(read_chain(narrow), np.zeros(2), np.ones(2))[0])
    assert MOST_ROUNDING * span < fall(narrow) <= bound
    chosen = executable_onnx(network, UNIT_SCALING, "y", {}, orders(("a", "b"), "a"))
    chain = read_chain(chosen)
    assert (chain.fed, chain.executed) == (np.float32, np.float64)
    rounding = 2 * float(chain_error(chain, np.zeros(2), np.ones(2))[0])
    assert fall(chosen) <= rounding <= MOST_ROUNDING * span


def test_a_network_that_keeps_the_order_is_stored_in_float32() -> None:
    network = monotone_network(2, (300, 300), [(0, 1)], seed=2)
    chosen = executable_onnx(network, UNIT_SCALING, "y", {}, orders(("a", "b"), "a"))
    assert chosen == build_onnx(network, UNIT_SCALING, "y", {})


def test_a_proof_of_weights_that_cancel_in_float32_is_refused(tmp_path: Path) -> None:
    network = monotone_network(3, (6, 5), [(0, 1)], seed=3)
    proof = prove(tmp_path / "made", network, task_with([monotone("pressure")]))
    kept = "Its execution in float32 adds nothing: every operation keeps these orders."
    assert proof.check(tmp_path).execution == kept
    weights, biases = list(network.weights), list(network.biases)
    # two neurons more in the last hidden layer that cancel each other, and are large
    weights[1] = np.concatenate([weights[1], weights[1][:1], weights[1][:1]])
    biases[1] = np.concatenate([biases[1], biases[1][:1], biases[1][:1]])
    weights[2] = np.concatenate([weights[2], np.float32([[4096.0, -4096.0]])], axis=1)
    other = build_onnx(ReluNetwork(tuple(weights), tuple(biases)), SCALING, "latency_ms", {})
    result = replace(proof, model=other).rehashed().check(tmp_path)
    assert not result.accepted
    assert "execution in float32 may add at most 0.000397 ms to a violation in latency_ms, got " in result.reason
    claim = {key: value for key, value in proof.claim.items() if key != "rounding"}  # no limit: its leaves decide
    assert "execution" not in replace(proof, model=other).claiming(claim).rehashed().check(tmp_path).reason


def test_a_proof_that_states_less_rounding_than_there_is_is_refused(tmp_path: Path) -> None:
    proof = prove(tmp_path / "made", network_with_many_leaves(), task_with([monotone("pressure")]))
    stated = proof.document["execution"]
    assert "Executed in float64" in stated and proof.check(tmp_path).accepted
    kept = "Its execution in float64 adds nothing: every operation keeps these orders."
    result = proof.saying({**proof.document, "execution": kept}).check(tmp_path)
    assert not result.accepted and "execution must be 'Executed in float64" in result.reason
    result = proof.with_claim(("rounding", "latency_ms"), 1e-9).rehashed().check(tmp_path)
    assert not result.accepted and "execution in float64 may add at most 1e-9 ms" in result.reason


def test_a_range_that_float32_cannot_resolve_is_refused(tmp_path: Path) -> None:
    """The output of a file in float64 is float32: between 1e9 and 1e9 + 4 there is nothing."""
    proof = prove(tmp_path / "made", network_with_many_leaves(), task_with([monotone("pressure")]))
    wide = onnx.load_model_from_string(proof.model)
    for item in wide.graph.initializer:
        if item.name == "target_offset":
            item.CopyFrom(numpy_helper.from_array(np.array([1e9]), item.name))
    result = proof.with_graph(wide).rehashed().check(tmp_path)
    assert not result.accepted and "execution in float64 may add at most 0.000397 ms" in result.reason


def test_a_limit_holds_for_every_kind_of_property(tmp_path: Path) -> None:
    """What execution adds: e to a limit, 2 e to a change and to an order that it does not keep."""
    content = build_onnx(cancelling(1000.0), UNIT_SCALING, "y", {})
    e = float(chain_error(read_chain(content), np.zeros(2), np.ones(2))[0])
    base = orders(("a", "b"), "a")
    kinds = {1: OutputRange(0, -9.0), 2: Robustness(np.zeros((1, 2)), np.ones(2), 5.0)}
    for times, rule in kinds.items():
        for room, fits in ((1.01, True), (0.99, False)):
            asked = replace(base, properties=(rule,), rounding={0: times * e * room})
            assert within_limits(content, asked) is fits
