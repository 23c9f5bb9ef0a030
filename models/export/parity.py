"""How far a predictor's exported file, run by onnxruntime, is from the network that was trained, and how fast it is.

Of policies models/tasks/control/evidence.py says it. The gate `parity` has the limit; that onnxruntime computes what
the proof is about is another question (models/verification/network/runtime_agreement.py).
"""

import time

import numpy as np
import torch

from feature_store.scaling import FeatureScaling
from models.export.onnx_model import INPUT
from models.verification.language.specification import FloatArray
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph_tensors import GraphTensors
from models.verification.network.runtime_session import open_session


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
    feed = {session.get_inputs()[0].name: np.asarray(row, dtype=np.float32)[None]}
    times = []
    for _ in range(repeats + 20):
        started = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - started)
    return float(np.median(times[20:]) * 1e6)
