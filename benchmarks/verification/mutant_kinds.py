"""A small bundle with a proof, as values, and the changes that `mutants.py` makes to it: one a mutant.

Symbols: the bundle's network has 3 inputs and 2 hidden layers of 12 neurons.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from benchmarks.verification.tampered_proof import Proof
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.tasks.supervised.product import network_product
from models.tasks.supervised.specifications import raw_specification
from models.tasks.task import parse_task
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph import dense_graph
from models.verification.network.graph_tensors import GraphTensors
from models.verification.verdict import Status

WIDTH = 12
NAMES = ("pressure", "connections", "temperature")
DIRECTIONS = {"pressure": "increasing", "temperature": "decreasing"}
SCALING = FeatureScaling(MinMaxScaling(NAMES, (0.125, 1.0, -3.5), (0.875, 64.0, 12.25)),
                         MinMaxScaling(("latency_ms",), (0.5,), (40.25,)))
# Of the network's random numbers; and how much steeper than its least slope it is made, scaled units: together a proof
# of some dozen leaves.
NETWORK_SEED, MARGIN = 0, 0.15
# A limit that holds where there are few connections, by some ms.
LOWEST_MS = -60.0
# Carried through both layers by neurons that are always active.
SHIFT = 10.0


def small_proof(folder: Path) -> Proof:
    """Verifies and exports the small network; fails unless it is PROVED."""
    task = parse_task({
        "name": "mutants", "target": {"name": "latency_ms", "unit": "ms"},
        "inputs": [{"name": name, "unit": "1"} for name in NAMES],
        "workloads": {"w": {"specification": {"properties": [
            *({"monotone": {"features": [name], "direction": way}} for name, way in DIRECTIONS.items()),
            {"range": {"minimum": LOWEST_MS, "when": {"connections": [1, 32]}}}]}}}}, "mutants")
    network, raw = small_network(np.random.default_rng(NETWORK_SEED)), raw_specification(task, "w", SCALING)
    product = network_product(task, "w", network, SCALING, raw, Versions("mutants", "mutants", NETWORK_SEED))
    verdict = write_bundle(folder, product)
    if verdict.status is not Status.PROVED:
        raise RuntimeError(f"the small network must be proved, got {verdict.status}: {verdict.reason}")
    return Proof.read(folder)


def small_network(rng: np.random.Generator) -> ReluNetwork:
    """Random, plus what makes it monotone with little margin."""
    wide = WIDTH - len(DIRECTIONS)
    weights = [rng.normal(size=(WIDTH, 3)) * (2 / 3) ** 0.5, rng.normal(size=(WIDTH, WIDTH)) * (2 / wide) ** 0.5,
               rng.normal(size=(1, WIDTH)) * (1 / wide) ** 0.5]
    biases = [rng.normal(size=WIDTH) * 0.3, rng.normal(size=WIDTH) * 0.3, rng.normal(size=1)]
    features = [NAMES.index(name) for name in DIRECTIONS]
    for k in (0, 1):
        weights[k][wide:] = 0.0
        weights[k + 1][:, wide:] = 0.0
    for unit, feature in enumerate(features, start=wide):
        weights[0][unit, feature] = weights[1][unit, unit] = 1.0
        biases[0][unit], biases[1][unit] = SHIFT, 0.0
    slopes = sampled_slopes(weights, biases, rng.random((20_000, 3)))[:, features]
    for unit, slope, way in zip(range(wide, WIDTH), slopes.T, DIRECTIONS.values(), strict=True):
        weights[2][0, unit] = MARGIN - slope.min() if way == "increasing" else -MARGIN - slope.max()
    return ReluNetwork(tuple(w.astype(np.float32) for w in weights), tuple(b.astype(np.float32) for b in biases))


def sampled_slopes(weights: Any, biases: Any, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """dy/dx (m, n) at points (m, n), in float64."""
    tensors = GraphTensors(dense_graph(weights, biases))
    return tensors.gradient(torch.as_tensor(points), torch.ones(1, dtype=torch.float64)).numpy()


def _model_byte(proof: Proof, rng: np.random.Generator) -> Proof:
    data = bytearray(proof.model)
    data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
    return replace(proof, model=bytes(data))


def _weight(proof: Proof, rng: np.random.Generator) -> Proof:
    """One stored number, of a layer or of the scaling: by an ulp, its sign, its scale."""
    model = onnx.load_model_from_string(proof.model)
    stored = model.graph.initializer[int(rng.integers(len(model.graph.initializer)))]
    array = numpy_helper.to_array(stored).copy()
    flat = array.reshape(-1)
    place = int(rng.integers(flat.size))
    flat[place] = rng.choice([np.nextafter(flat[place], np.float32(np.inf)),
                              np.nextafter(flat[place], np.float32(-np.inf)),
                              -flat[place], flat[place] * np.float32(10.0 ** rng.uniform(-4, 4))])
    stored.CopyFrom(numpy_helper.from_array(array, stored.name))
    return replace(proof, model=model.SerializeToString())


def _leaf(proof: Proof, rng: np.random.Generator) -> Proof:
    """One leaf less: taken out of the file, or its sibling made to stand for both."""
    dimension, value = proof.tree
    if rng.random() < 0.5:
        leaf = int(rng.choice(np.flatnonzero(dimension == -1)))
        return proof.with_tree(np.delete(dimension, leaf), np.delete(value, leaf))
    inner = np.flatnonzero(dimension >= 0)
    parents = [i for i in inner if dimension[i + 1] == -1]  # preorder: the first child follows its parent
    parent = int(rng.choice(parents))
    return proof.with_tree(np.delete(dimension, [parent, parent + 1]), np.delete(value, [parent, parent + 1]))


def _split_value(proof: Proof, rng: np.random.Generator) -> Proof:
    dimension, value = proof.tree
    value[rng.choice(np.flatnonzero(dimension >= 0))] += rng.normal() * 10.0 ** rng.uniform(-9, 1)
    return proof.with_tree(dimension, value)


def _split_dimension(proof: Proof, rng: np.random.Generator) -> Proof:
    dimension, value = proof.tree
    place = int(rng.integers(len(dimension)))
    dimension[place] = rng.choice([d for d in range(-2, 4) if d != dimension[place]])
    return proof.with_tree(dimension, value)


def _wall(proof: Proof, rng: np.random.Generator) -> Proof:
    name, side = str(rng.choice(NAMES)), int(rng.integers(2))
    low, high = proof.claim["box"][name]
    moved = (low, high)[side] + rng.choice([-1, 1]) * (high - low) * 10.0 ** rng.uniform(-9, 2)
    return proof.with_claim(("box", name, side), float(moved))


def _condition(proof: Proof, rng: np.random.Generator) -> Proof:
    """The condition of the limit, wider, narrower, of another input, or gone."""
    number = len(DIRECTIONS)
    body = proof.claim["properties"][number]["range"]
    low, high = body["when"]["connections"]
    moved = [max(1.0, float(low * 10.0 ** rng.uniform(-1, 1))), float(high * 10.0 ** rng.uniform(-1, 1))]
    others: list[Any] = [{"connections": moved}, {"connections": moved[::-1]}, {"pressure": [0.2, 0.3]}, {}, None,
                         {"humidity": [0, 1]}]
    when = others[int(rng.choice(len(others), p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1]))]
    return proof.with_claim(("properties", number, "range", "when"), when)


def _limit(proof: Proof, rng: np.random.Generator) -> Proof:
    """The limit itself, or what execution may add to it."""
    if rng.random() < 0.5:
        return proof.with_claim(("rounding", "latency_ms"), float(rng.normal() * 10.0 ** rng.uniform(-9, 2)))
    side = str(rng.choice(["minimum", "maximum"]))
    return proof.with_claim(("properties", len(DIRECTIONS), "range", side), float(rng.normal() * 60))


def _tolerance(proof: Proof, rng: np.random.Generator) -> Proof:
    tolerance = proof.claim["tolerance"]["latency_ms"]
    return proof.with_claim(("tolerance", "latency_ms"),
                            float(rng.choice([0.0, -1e-4, 20.0, tolerance * 10.0 ** rng.uniform(-5, 5)])))


def _direction(proof: Proof, rng: np.random.Generator) -> Proof:
    number = int(rng.integers(len(DIRECTIONS)))
    rule = proof.claim["properties"][number]["monotone"]
    way = {"increasing": "decreasing", "decreasing": "increasing"}[rule["direction"]]
    way = str(rng.choice([way, way, way.upper(), "up"]))
    return proof.with_claim(("properties", number, "monotone", "direction"), way)


def _features(proof: Proof, rng: np.random.Generator) -> Proof:
    """Another feature, one more, none, an unknown one; or the inputs' names in another order."""
    if rng.random() < 0.3:
        return proof.with_claim(("features",), [NAMES[place] for place in rng.permutation(3)])
    number = int(rng.integers(len(DIRECTIONS)))
    rule = proof.claim["properties"][number]["monotone"]
    others = [[name] for name in NAMES] + [[*rule["features"], name] for name in NAMES] + [[], ["humidity"]]
    return proof.with_claim(("properties", number, "monotone", "features"), others[int(rng.integers(len(others)))])


def _verdict(proof: Proof, rng: np.random.Generator) -> Proof:
    choices: list[tuple[str, list[Any]]] = [
        ("verdict", ["REFUTED", "UNKNOWN", "proved", "", None, True]), ("format", ["assay-proof/2", ""]),
        ("parts", [[], None, [{"name": "monotone", "leaves": 1}]])]
    field, values = choices[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
    return proof.saying({**proof.document, field: values[int(rng.integers(len(values)))]})


def _statement(proof: Proof, rng: np.random.Generator) -> Proof:
    field = str(rng.choice(["statement", "statement", "execution"]))
    text = proof.document[field]
    place = int(rng.integers(len(text)))
    edited = [text.replace("increasing", "decreasing"), text.replace("pressure", "connections"), text[:place],
              text[:place] + text[place + 1 :], text.replace(" at most ", " at most 0."), text + " Always.", ""]
    return proof.saying({**proof.document, field: edited[int(rng.integers(len(edited)))]})


def _digest(proof: Proof, rng: np.random.Generator) -> Proof:
    key = str(rng.choice(["model_sha256", "specification_sha256", "trees_sha256"]))
    old = proof.document[key]
    place = int(rng.integers(len(old)))
    new = old[:place] + "0123456789abcdef"[int(rng.integers(16))] + old[place + 1 :]
    return proof.saying({**proof.document, key: new})


KINDS: Mapping[str, Callable[[Proof, np.random.Generator], Proof]] = {
    "byte of the model": _model_byte, "weight": _weight, "leaf dropped": _leaf, "split moved": _split_value,
    "split turned": _split_dimension, "wall moved": _wall, "condition": _condition, "limit": _limit,
    "tolerance": _tolerance, "direction": _direction, "feature names": _features, "verdict": _verdict,
    "statement": _statement,
    "digest": _digest,
}
# A digest, a verdict and a sentence that are computed anew are the right ones.
REHASHED_KINDS = tuple(kind for kind in KINDS if kind not in ("digest", "verdict", "statement"))


def mutant(proof: Proof, kind: str, rehash: bool, rng: np.random.Generator) -> Proof:
    """One mutant of this kind that differs from the proof; rehash: with everything else made to fit again."""
    while True:
        other = KINDS[kind](proof, rng)
        other = other.rehashed() if rehash else other
        if other not in (proof, _rehashed(proof)):
            return other


@lru_cache(maxsize=4)
def _rehashed(proof: Proof) -> Proof:
    return proof.rehashed()
