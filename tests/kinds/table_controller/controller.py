"""The controller: a ReLU network of one hidden layer whose gains are fitted to the table, none of them negative.

    new limit = limit + sum of a_j max(0, p - k_j) - sum of b_j max(0, k_j - p)    p: p99_over_slo, k_j: knots
    replicas  = sum of c_j max(0, u - q_j) - sum of d_j max(0, q_j - u)            u: utilization, q_j: 0.2, 0.5, 0.8

Symbols: h hidden neurons; weights (h, 3), (2, h) and biases (h,), (2,) in raw units.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from scipy.optimize import nnls

from tests.kinds.table_controller.task import INPUTS, OUTPUTS

Array = NDArray[np.float64]
UTILIZATION_KNOTS = (0.2, 0.5, 0.8)


@dataclass(frozen=True)
class Controller:
    """Two layers."""

    first: Array
    first_bias: Array
    second: Array
    second_bias: Array

    def __call__(self, states: Array) -> Array:
        """(m, 2) of (m, 3)."""
        hidden = np.maximum(states @ self.first.T + self.first_bias, 0.0)
        return np.asarray(hidden @ self.second.T + self.second_bias)

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "Controller":
        with np.load(path, allow_pickle=False) as stored:
            return cls(**{name: stored[name] for name in stored.files})


def fit(table: pd.DataFrame, knots: tuple[float, ...]) -> Controller:
    """Least squares without negative gains: up to such gains the new limit never falls when latency rises."""
    p, u, limit = (table[name].to_numpy(dtype=np.float64) for name in INPUTS)
    rows, biases, signs = [[0.0, 0.0, 1.0]], [0.0], [0]
    columns: list[list[Array]] = [[], []]
    for which, (places, values) in enumerate(((knots, p), (UTILIZATION_KNOTS, u))):
        for place in places:
            for sign in (1, -1):
                rows.append([sign * float(which == 0), sign * float(which == 1), 0.0])
                biases.append(-sign * place)
                signs.append(sign)
                columns[which].append(sign * np.maximum(sign * (values - place), 0.0))
    gains = [nnls(np.column_stack(columns[0]), table["new_limit_cores"].to_numpy() - limit)[0],
             nnls(np.column_stack(columns[1]), table["replica_change"].to_numpy())[0]]
    second = np.zeros((2, len(rows)))
    second[0, 0] = 1.0
    second[0, 1: 1 + len(gains[0])] = gains[0] * signs[1: 1 + len(gains[0])]
    second[1, 1 + len(gains[0]):] = gains[1] * signs[1 + len(gains[0]):]
    return Controller(np.array(rows), np.array(biases), second, np.zeros(2))


def to_onnx(controller: Controller) -> bytes:
    """Raw units in float32 at both ends, float64 between them."""
    tensors = {"first": controller.first, "first_bias": controller.first_bias, "second": controller.second,
               "second_bias": controller.second_bias}
    nodes = [helper.make_node("Cast", ["state"], ["wide"], to=TensorProto.DOUBLE),
             helper.make_node("Gemm", ["wide", "first", "first_bias"], ["linear"], transB=1),
             helper.make_node("Relu", ["linear"], ["hidden"]),
             helper.make_node("Gemm", ["hidden", "second", "second_bias"], ["wide_action"], transB=1),
             helper.make_node("Cast", ["wide_action"], ["action"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(
        nodes, "controller", [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["batch", len(INPUTS)])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", len(OUTPUTS)])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def rewards(model: bytes, episodes: int, seed: int) -> Array:
    """(episodes,) of -(cores + 4 * the excess of latency), each episode 20 steps of a load drawn by its own seed."""
    from models.verification.network.runtime_session import open_session

    session = open_session(model)
    load = np.stack([np.random.default_rng([seed, episode]).uniform(0.5, 3.0, 20) for episode in range(episodes)])
    limit, total = np.full(episodes, 1.0), np.zeros(episodes)
    for step in range(load.shape[1]):
        use = np.clip(load[:, step] / limit, 0.0, 1.0)
        ratio = np.clip(load[:, step] / limit, 0.0, 3.0)
        (action,) = session.run(None, {"state": np.column_stack([ratio, use, limit]).astype(np.float32)})
        limit = np.clip(action[:, 0].astype(np.float64), 0.5, 8.0)
        total -= limit + 4.0 * np.maximum(load[:, step] / limit - 1.0, 0.0)
    return total
