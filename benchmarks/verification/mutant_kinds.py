"""A small bundle with a proof, as values, and the changes that `mutants.py` makes to it: one a mutant.

Symbols: the bundle's network has 3 inputs and 2 hidden layers of 12 neurons.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
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
from models.tasks.task import parse_task
from models.training.workload import raw_specification, scaled_specification
from models.verification.checker.model_file import statement
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph import dense_graph
from models.verification.network.graph_tensors import GraphTensors
from models.verification.verdict import Status
from models.verification.verify import verify

WIDTH = 12
NAMES = ("pressure", "connections", "temperature")
DIRECTIONS = {"pressure": "increasing", "temperature": "decreasing"}
SCALING = FeatureScaling(MinMaxScaling(NAMES, (0.125, 1.0, -3.5), (0.875, 64.0, 12.25)),
                         MinMaxScaling(("latency_ms",), (0.5,), (40.25,)))
# Of the network's random numbers; and how much steeper than its least slope it is made, scaled units: together a proof
# of some dozen leaves.
NETWORK_SEED, MARGIN = 0, 0.15
# Carried through both layers by neurons that are always active.
SHIFT = 10.0


def small_proof(folder: Path) -> Proof:
    """Verifies and exports the small network; fails unless it is PROVED."""
    task = parse_task({
        "name": "mutants", "target": {"name": "latency_ms", "unit": "ms"},
        "inputs": [{"name": name, "unit": "1"} for name in NAMES],
        "workloads": {"w": {"specification": {"properties": [
            {"monotone": {"features": [name], "direction": way}} for name, way in DIRECTIONS.items()]}}}}, "mutants")
    network, raw = small_network(np.random.default_rng(NETWORK_SEED)), raw_specification(task, "w", SCALING)
    verdict = verify(network, scaled_specification(raw, SCALING))
    versions = {"code_version": "mutants", "data_version": "mutants", "seed": NETWORK_SEED}
    _, verdict = write_bundle(folder, task, "w", network, SCALING, raw, verdict, versions)
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
    place, side = int(rng.integers(3)), str(rng.choice(["minimum", "maximum"]))
    entry = proof.contract["inputs"][place]
    moved = entry[side] + rng.choice([-1, 1]) * (entry["maximum"] - entry["minimum"]) * 10.0 ** rng.uniform(-9, 2)
    return proof.with_contract(("inputs", place, side), float(moved))


def _output_range(proof: Proof, rng: np.random.Generator) -> Proof:
    side = str(rng.choice(["minimum", "maximum"]))
    other = proof.with_contract(("outputs", 0, side), float(rng.normal() * 10.0 ** rng.uniform(-6, 4)))
    return other if rng.random() < 0.5 else _with_its_sentence(other)


def _tolerance(proof: Proof, rng: np.random.Generator) -> Proof:
    stated = proof.contract["specification"]
    tolerance = float(rng.choice([0.0, -1e-4, 0.5, 1.0, stated["tolerance"] * 10.0 ** rng.uniform(-5, 5)]))
    other = proof.with_contract(("specification", "tolerance"), tolerance)
    # the honest sentence about another tolerance, or the old one
    return other if rng.random() < 0.5 else _with_its_sentence(other)


def _direction(proof: Proof, rng: np.random.Generator) -> Proof:
    number = int(rng.integers(len(DIRECTIONS)))
    rule = proof.contract["specification"]["properties"][number]["monotone"]
    way = {"increasing": "decreasing", "decreasing": "increasing"}[rule["direction"]]
    way = str(rng.choice([way, way, way.upper(), "up"]))
    return _restated(proof, number, {**rule, "direction": way}, rng)


def _features(proof: Proof, rng: np.random.Generator) -> Proof:
    """Another feature, one more, none, an unknown one; or the inputs' names in another order."""
    if rng.random() < 0.3:
        order = rng.permutation(3)
        names = [{"name": NAMES[new], "old": old} for old, new in enumerate(order)]
        for entry in names:
            proof = proof.with_contract(("inputs", entry["old"], "name"), entry["name"])
        return proof
    number = int(rng.integers(len(DIRECTIONS)))
    rule = proof.contract["specification"]["properties"][number]["monotone"]
    others = [[name] for name in NAMES] + [[*rule["features"], name] for name in NAMES] + [[], ["humidity"]]
    return _restated(proof, number, {**rule, "features": others[int(rng.integers(len(others)))]}, rng)


def _restated(proof: Proof, number: int, rule: dict[str, Any], rng: np.random.Generator) -> Proof:
    """Another property, mostly with the sentence that says so."""
    proof = proof.with_contract(("specification", "properties", number, "monotone"), rule)
    return proof if rng.random() < 0.2 else _with_its_sentence(proof)


def _with_its_sentence(proof: Proof) -> Proof:
    """The same with the honest sentence about what its contract claims now."""
    return proof.with_contract(("specification", "statement"), statement(proof.contract))


def _verdict(proof: Proof, rng: np.random.Generator) -> Proof:
    choices: list[tuple[str, list[Any]]] = [
        ("verdict", ["REFUTED", "UNKNOWN", "proved", "", None, True]), ("format", ["assay-certificate/2", ""]),
        ("leaves_file", ["leaves.npz", "../certificate.npz"])]
    field, values = choices[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
    return replace(proof, certificate={**proof.certificate, field: values[int(rng.integers(len(values)))]})


def _statement(proof: Proof, rng: np.random.Generator) -> Proof:
    text = proof.contract["specification"]["statement"]
    place = int(rng.integers(len(text)))
    edited = [text.replace("increasing", "decreasing"), text.replace("pressure", "connections"), text[:place],
              text[:place] + text[place + 1 :], text.replace(" at most ", " at most 0."), text + " Always.", ""]
    return proof.with_contract(("specification", "statement"), edited[int(rng.integers(len(edited)))])


def _digest(proof: Proof, rng: np.random.Generator) -> Proof:
    keys = ["model_sha256", "leaves_sha256", "specification_sha256", "contract"]
    key = keys[int(rng.integers(len(keys)))]
    old = proof.contract["model"]["sha256"] if key == "contract" else proof.certificate[key]
    place = int(rng.integers(len(old)))
    new = old[:place] + "0123456789abcdef"[int(rng.integers(16))] + old[place + 1 :]
    if key == "contract":
        return proof.with_contract(("model", "sha256"), new)
    return replace(proof, certificate={**proof.certificate, key: new})


KINDS: Mapping[str, Callable[[Proof, np.random.Generator], Proof]] = {
    "byte of the model": _model_byte, "weight": _weight, "leaf dropped": _leaf, "split moved": _split_value,
    "split turned": _split_dimension, "wall moved": _wall, "output range": _output_range, "tolerance": _tolerance,
    "direction": _direction, "feature names": _features, "verdict": _verdict, "statement": _statement,
    "digest": _digest,
}
# A digest that is computed anew is the right one.
REHASHED_KINDS = tuple(kind for kind in KINDS if kind != "digest")


def mutant(proof: Proof, kind: str, rehash: bool, rng: np.random.Generator) -> Proof:
    """One mutant of this kind that differs from the proof; rehash: with everything else made to fit again."""
    while True:
        other = KINDS[kind](proof, rng)
        other = other.rehashed() if rehash else other
        if other not in (proof, proof.rehashed()):
            return other
