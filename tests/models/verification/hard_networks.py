"""Networks and boxes that are hard on rounding: strategies for the tests that attack the checker's bounds.

Each draws (network, lower, upper, rng); `one_of_the_boxes` takes the first box of those that draw several.
"""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from models.verification.network.fully_connected import ReluNetwork
from tests.models.verification.networks import exact_preactivations, networks_and_boxes, random_network

# scales whose powers over many layers, and whose products, leave float32's range but not float64's
DEEP = networks_and_boxes(widths=(1, 4), depth=(4, 8), scales=(1e-20, 1e-3, 1.0, 3.0, 1e15), boxes=1, most_inputs=3)
WIDE = networks_and_boxes(widths=(20, 40), depth=(1, 3), scales=(1e-20, 0.1, 1.0, 30.0, 1e15), boxes=1)
SMALL = networks_and_boxes(widths=(1, 6), depth=(1, 3), boxes=1)


def one_of_the_boxes(case):
    """(network, lower (n,), upper (n,), rng) from the strategies of one box and of several."""
    network, lower, upper, rng = case
    return network, np.atleast_2d(lower)[0], np.atleast_2d(upper)[0], rng


@st.composite
def wild_networks(draw):
    """Layers, rows and walls at scales from 1e-20 to 1e20, with pairs of neurons that nearly cancel."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    inputs, hidden = draw(st.integers(1, 3)), [draw(st.integers(2, 6)) for _ in range(draw(st.integers(1, 3)))]
    network = random_network(rng, inputs, hidden)
    weights, biases = [w.astype(np.float64) for w in network.weights], [b.astype(np.float64) for b in network.biases]
    per_row = draw(st.booleans())
    for weight, bias in zip(weights, biases, strict=True):
        rows = len(weight) if per_row else 1
        scale = 10.0 ** rng.uniform(-20, 20, size=(rows, 1))
        weight *= scale
        bias *= scale[:, 0] * 10.0 ** rng.uniform(-3, 3)
    if draw(st.booleans()):
        # the second neuron is the first but for one unit in the last place, and enters with the opposite sign
        first = weights[0].astype(np.float32)
        weights[0][1] = np.nextafter(first[0], np.float32(np.inf))
        biases[0][1] = biases[0][0]
        weights[1][:, 1] = -weights[1][:, 0]
    network = ReluNetwork(tuple(w.astype(np.float32) for w in weights), tuple(b.astype(np.float32) for b in biases))
    walls = rng.normal(size=(2, inputs)) * 10.0 ** rng.uniform(-20, 20, size=inputs)
    return network, walls.min(axis=0), walls.max(axis=0), rng


@st.composite
def annihilating_networks(draw):
    """Deep networks, every neuron active, whose derivative is what is left of terms 2^20 to 2^40 times its size.

    Neurons stand in pairs of twins (but for one unit in the last place here and there), and two layers subtract one
    twin from the other, so that sums cancel on the way up and on the way down. Float32 products fit into
    float64: only from the third layer on does anything round at all.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    inputs, pairs, depth = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(3, 6))
    subtracting = draw(st.integers(1, depth - 1))
    weights, biases, before = [], [], inputs
    for k in range(depth):
        weight = np.repeat(rng.uniform(0.5, 1.5, size=(pairs, before)), 2, axis=0)
        if k == subtracting:
            half = rng.uniform(0.5, 1.5, size=(pairs, before // 2))
            weight = np.kron(half, np.array([[1.0, -1.0], [-1.0, 1.0]]))
        weight = weight.astype(np.float32)
        nudge = rng.random(weight.shape) < 0.3
        weight[nudge] = np.nextafter(weight[nudge], np.float32(np.inf))
        weights.append(weight)
        biases.append(np.full(2 * pairs, 1e3, dtype=np.float32))
        before = 2 * pairs
    weights.append(np.repeat(rng.uniform(0.5, 1.5, size=(1, pairs)), 2, axis=1).astype(np.float32))
    biases.append(np.zeros(1, dtype=np.float32))
    lower = rng.random(inputs)
    return ReluNetwork(tuple(weights), tuple(biases)), lower, lower + draw(st.sampled_from([0.0, 1e-9, 1e-3])), rng


@st.composite
def kinks_where_sums_cancel(draw):
    """Annihilating networks whose deeper neurons change sign right in the box: rounding decides their states."""
    network, lower, upper, rng = draw(annihilating_networks())
    biases = [bias.copy() for bias in network.biases]
    middle = [Fraction(float(v)) for v in (lower + upper) / 2]
    for k in range(draw(st.integers(1, 2)), len(biases) - 1):
        values = exact_preactivations(ReluNetwork(network.weights, tuple(biases)), middle)[k]
        biases[k] = np.array([float(Fraction(float(b)) - z) for b, z in zip(biases[k], values, strict=True)],
                             dtype=np.float32)
        biases[k] += rng.choice([0, 1e-3, 1.0], size=len(biases[k])).astype(np.float32)
    return ReluNetwork(network.weights, tuple(biases)), lower, upper, rng
