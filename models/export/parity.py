"""How far the exported file, run by onnxruntime, is from the network that was trained, and how fast it is."""

import time

import numpy as np
import onnxruntime
import torch

from feature_store.scaling import FeatureScaling
from models.export.onnx_model import INPUT
from models.verification.language.specification import FloatArray, Specification
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph_tensors import GraphTensors
from models.verification.verdict import Witness


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """A single-threaded CPU session: one-row decisions lose time to thread pools."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def largest_difference(model: bytes, network: ReluNetwork, scaling: FeatureScaling, points: int, seed: int) -> float:
    """Largest |onnxruntime - torch| over random raw inputs of the box, in scaled target units.

    The torch side runs the scaling and the network in float32, as the file does; `points` uniform samples.
    """
    unit = np.random.default_rng(seed).random((points, network.inputs))
    raw = scaling.features.unscale(unit)
    (out,) = open_session(model).run(None, {INPUT: raw.astype(np.float32)})
    tensors = GraphTensors(network.graph, torch.float32)
    with torch.no_grad():
        expected = tensors(tensors.tensor(scaling.features.scale(raw)))[:, 0]
    got = scaling.target.scale(out.astype(np.float64))[:, 0]
    return float(np.abs(got - expected.double().numpy()).max())


def one_row_latency_us(model: bytes, row: FloatArray, repeats: int = 300) -> float:
    """Median microseconds of one onnxruntime call on one row (n,) of raw units."""
    session = open_session(model)
    feed = {INPUT: np.asarray(row, dtype=np.float32)[None]}
    times = []
    for _ in range(repeats + 20):
        started = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - started)
    return float(np.median(times[20:]) * 1e6)


def replays(model: bytes, witness: Witness, scaling: FeatureScaling, specification: Specification) -> bool:
    """Whether a counterexample violates the order in onnxruntime on the file, as float32 inside the box exactly.

    Args:
        witness: in scaled coordinates; specification: with its box in raw units.
    """
    low, high = specification.lower, specification.upper
    pair = np.clip(scaling.features.unscale(np.stack([witness.low, witness.high])), low, high).astype(np.float32)
    # rounding to float32 must not leave the box: one step back inside
    pair = np.where(pair > high, np.nextafter(pair, np.float32(-np.inf)), pair)
    pair = np.where(pair < low, np.nextafter(pair, np.float32(np.inf)), pair)
    if (pair < low).any() or (pair > high).any():
        return False  # a side of the box is narrower than the gap between two float32 numbers
    (out,) = open_session(model).run(None, {INPUT: pair})
    value = scaling.target.scale(out.astype(np.float64))[:, 0]
    distance = np.abs(np.diff(scaling.features.scale(pair.astype(np.float64)), axis=0)).sum()
    return bool(witness.sign * (value[0] - value[1]) > specification.tolerance * distance)
