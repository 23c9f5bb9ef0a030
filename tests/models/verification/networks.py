"""Small networks, boxes and oracles for the tests of verification.

Oracles: `exact_value` and `exact_gradient` in rationals (every float is one), `sampled_slopes` in float64.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.learners.mlp import build_mlp, linear_layers
from models.training.sign_pattern import initialise
from models.verification.language.specification import Direction, FloatArray, Monotonicity, Specification
from models.verification.network.fully_connected import ReluNetwork, network_from_torch
from models.verification.network.graph_tensors import GraphTensors

# Two workers share two cores: more threads would only fight.
torch.set_num_threads(1)

Queries = Sequence[tuple[int, int]]


def network_of(*layers: tuple[object, object]) -> ReluNetwork:
    """A network from (weight, bias) pairs of nested lists."""
    return ReluNetwork(tuple(np.array(w, dtype=np.float32) for w, _ in layers),
                       tuple(np.array(b, dtype=np.float32) for _, b in layers))


def random_network(
    rng: np.random.Generator, inputs: int, hidden: Sequence[int], scale: float = 1.0, zeros: float = 0.0,
    dead: float = 0.0,
) -> ReluNetwork:
    """He-initialised times `scale`; a share `zeros` of the weights is 0, a share `dead` of the neurons never fires."""
    weights, biases, before = [], [], inputs
    for width in (*hidden, 1):
        weight = rng.normal(size=(width, before)) * (2.0 / before) ** 0.5 * scale
        weight[rng.random(weight.shape) < zeros] = 0.0
        bias = rng.normal(size=width) * 0.5 * scale
        if width > 1:
            bias[rng.random(width) < dead] = -1e3 * scale
        weights.append(weight.astype(np.float32))
        biases.append(bias.astype(np.float32))
        before = width
    return ReluNetwork(tuple(weights), tuple(biases))


def monotone_network(inputs: int, hidden: Sequence[int], queries: Queries, seed: int = 0) -> ReluNetwork:
    """A randomly initialised network that is monotone by construction, with biases that spread the kinks."""
    generator = torch.Generator().manual_seed(seed)
    module = build_mlp(inputs, hidden, generator)
    initialise(linear_layers(module), queries)
    with torch.no_grad():
        for layer in linear_layers(module):
            layer.bias.normal_(0.0, 0.3, generator=generator)
    return network_from_torch(module)


def specification(
    inputs: int, queries: Queries, lower: float | FloatArray = 0.0, upper: float | FloatArray = 1.0,
    tolerance: float = 1e-4,
) -> Specification:
    """Monotonicity in the queries over a box; features are called x0, x1, ..."""
    directions: dict[int, Direction] = {1: "increasing", -1: "decreasing"}
    return Specification(
        tuple(f"x{i}" for i in range(inputs)), np.full(inputs, 0.0) + lower, np.full(inputs, 0.0) + upper,
        tuple(Monotonicity((feature,), directions[sign]) for feature, sign in queries), tolerance)


def all_queries(inputs: int) -> list[tuple[int, int]]:
    """Every feature in both directions."""
    return [(feature, sign) for feature in range(inputs) for sign in (1, -1)]


def points_inside(rng: np.random.Generator, lower: FloatArray, upper: FloatArray, count: int) -> FloatArray:
    """(count, n) points of the box: corners, walls, its centre and uniform ones, never outside."""
    share = rng.random((count, len(lower)))
    corner = rng.random((count, len(lower))) < 0.5
    snapped = rng.random((count, 1)) < 0.5
    share = np.where(snapped & (rng.random(share.shape) < 0.7), corner, share)
    share[0] = 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        points = lower * (1 - share) + upper * share
    return np.clip(points, lower, upper)


def sampled_slopes(network: ReluNetwork, points: FloatArray, queries: Queries) -> FloatArray:
    """sign * dy/dx[feature] in float64 at the points (m, n): (m, F)."""
    slopes = GraphTensors(network.graph).gradient(torch.as_tensor(points), torch.ones(1, dtype=torch.float64)).numpy()
    return np.stack([sign * slopes[:, feature] for feature, sign in queries], axis=1)


def preactivations(network: ReluNetwork, points: FloatArray) -> list[FloatArray]:
    """Pre-activations of every hidden layer at the points (m, n) in float64: (m, w) each."""
    a, found = points, []
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        z = a @ weight.T.astype(np.float64) + bias
        found.append(z)
        a = np.maximum(z, 0)
    return found


def exact_gradient(network: ReluNetwork, point: Sequence[float | Fraction]) -> list[Fraction]:
    """Partial derivatives at a point in rational arithmetic; a neuron that stands exactly on its kink is off."""
    masks = [[value > 0 for value in z] for z in exact_preactivations(network, point)]
    g = [Fraction(float(w)) for w in network.weights[-1][0]]
    for weight, mask in zip(reversed(network.weights[:-1]), reversed(masks), strict=True):
        g = [sum((Fraction(float(weight[i, j])) * g[i] for i in range(len(mask)) if mask[i]), Fraction(0))
             for j in range(weight.shape[1])]
    return g


def exact_preactivations(network: ReluNetwork, point: Sequence[float | Fraction]) -> list[list[Fraction]]:
    """Pre-activations of every hidden layer at a point in rational arithmetic."""
    a, found = [Fraction(value) for value in point], []
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        z = [sum((Fraction(float(w)) * v for w, v in zip(row, a, strict=True)), Fraction(float(b)))
             for row, b in zip(weight, bias, strict=True)]
        found.append(z)
        a = [max(value, Fraction(0)) for value in z]
    return found


def exact_value(network: ReluNetwork, point: Sequence[float | Fraction]) -> Fraction:
    """f at a point in rational arithmetic."""
    last = [max(value, Fraction(0)) for value in exact_preactivations(network, point)[-1]]
    return sum((Fraction(float(w)) * a for w, a in zip(network.weights[-1][0], last, strict=True)),
               Fraction(float(network.biases[-1][0])))


def as_float64(network: ReluNetwork) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Weights and biases as the checker takes them."""
    return [w.astype(np.float64) for w in network.weights], [b.astype(np.float64) for b in network.biases]


def passage(network: ReluNetwork, feature: int, slope: float, shift: float = 10.0) -> ReluNetwork:
    """The network plus slope * x[feature]: one more unit a layer that stays active where x[feature] > -shift."""
    weights, biases = [], []
    last = len(network.weights) - 1
    for k, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        rows, columns = weight.shape
        wide = np.zeros((rows + (k < last), columns + (k > 0)), dtype=np.float32)
        wide[:rows, :columns] = weight
        if k == 0:
            wide[-1, feature] = 1.0
        elif k < last:
            wide[-1, -1] = 1.0
        else:
            wide[0, -1] = slope
        extra = [] if k == last else [shift if k == 0 else 0.0]
        weights.append(wide)
        biases.append(np.concatenate([bias, np.array(extra, dtype=np.float32)]))
    return ReluNetwork(tuple(weights), tuple(biases))


@st.composite
def networks_and_boxes(
    draw: Callable[..., object], widths: tuple[int, int] = (3, 24), depth: tuple[int, int] = (1, 4),
    scales: Sequence[float] = (1e-3, 0.1, 1.0, 3.0, 30.0), boxes: int = 3, most_inputs: int = 6,
) -> tuple[ReluNetwork, FloatArray, FloatArray, np.random.Generator]:
    """A random network with (boxes, n) lower and upper walls; some boxes have sides without width."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    inputs = draw(st.integers(1, most_inputs))
    hidden = [draw(st.integers(*widths)) for _ in range(draw(st.integers(*depth)))]
    network = random_network(rng, inputs, hidden, draw(st.sampled_from(scales)),
                             draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])), draw(st.sampled_from([0.0, 0.0, 0.5])))
    size = draw(st.sampled_from([1e-6, 1e-2, 1.0, 10.0]))
    walls = rng.normal(size=(2, boxes, inputs)) * size + rng.normal(size=(boxes, inputs))
    flat = rng.random((boxes, inputs)) < draw(st.sampled_from([0.0, 0.0, 0.3, 1.0]))
    walls[1] = np.where(flat, walls[0], walls[1])
    return network, walls.min(axis=0), walls.max(axis=0), rng
