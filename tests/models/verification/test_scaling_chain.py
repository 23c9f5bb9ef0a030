"""Policies that take raw telemetry are decided and certified as one chain: logarithms, change, limits, targets.

The logarithm is a sum of hinges that are counted down from their kinks, log x = log top - sum c relu(k - x) with every
c > 0, so that nothing cancels; the clips are counted down from their upper ends; the former target is carried along
beside the change.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from models.verification.decide import decide
from models.verification.proof_file import check_proof
from models.verification.verdict import Status
from tests.models.verification.onnx_files import dense_file, run_file

LIMITS = {"latency": (1.0, 1e4), "rate": (0.1, 5e3), "utilisation": (0.01, 1.0), "replicas": (1.0, 100.0)}
KINKS, HIDDEN, UP, DOWN = 12, 24, 0.7, 0.2877
QUIET = {"latency": [1, 50], "utilisation": [0.01, 0.2]}


def logarithm(low: float, high: float, kinks: int) -> tuple[Any, Any]:
    """Kinks k and coefficients c of log(x / low) = log(high / low) - sum c relu(k - x)."""
    at = np.geomspace(low, high, kinks)
    slope = np.diff(np.log(at)) / np.diff(at)
    return at[1:], np.append(-np.diff(slope), slope[-1])


def policy(path: Path, seed: int = 0, quiet: float = 0.0) -> Path:
    """Raw telemetry -> logarithms -> two layers of positive weights -> a clipped change of log replicas -> replicas.

    quiet: weight of a neuron that takes the change down where latency and utilisation are low.
    """
    random, names = np.random.default_rng(seed), list(LIMITS)
    first, offset, logs = [], [], np.zeros((len(names), 0))
    for i, (low, high) in enumerate(LIMITS.values()):
        kinks, of = logarithm(low, high, KINKS)
        first += [-np.eye(len(names))[i]] * len(kinks)
        offset += kinks.tolist()
        logs = np.hstack([logs, -np.outer(np.eye(len(names))[i], of)])
    top = np.array([np.log(high / low) for low, high in LIMITS.values()])
    into = np.abs(random.normal(size=(HIDDEN, 4))) * [1, 1, 1, 0] / top
    # 1 less the scaled logarithms of latency and utilisation, above 0 where both are low
    calm = -np.array([[1 / top[0], 0, 1 / top[2], 0]])
    second = np.vstack([into @ logs, calm @ logs, logs[3:]])
    second_offset = np.concatenate([into @ top - into.sum(1) * top.mean() * 0.5, [1.6 + (calm @ top)[0]], top[3:]])
    third = np.zeros((HIDDEN + 2, HIDDEN + 2))
    third[:HIDDEN, :HIDDEN] = np.abs(random.normal(size=(HIDDEN, HIDDEN))) / HIDDEN
    third[HIDDEN:, HIDDEN:] = np.eye(2)
    change = np.zeros((2, HIDDEN + 2))
    change[0, :HIDDEN], change[0, HIDDEN], change[1, -1] = np.abs(random.normal(size=HIDDEN)) * 0.3, -quiet, 1
    at, steps = np.linspace(0, top[3], 2 * KINKS), np.exp(np.linspace(0, top[3], 2 * KINKS))
    slope = np.diff(steps) / np.diff(at)
    exponential = np.concatenate([slope[:1], np.diff(slope)])
    weights = [np.array(first), second, third, change, np.array([[-1.0, 0], [0, 1]]), np.array([[1.0, -1.0]]),
               -np.ones((len(at) - 1, 1)), exponential[None]]
    biases = [np.array(offset), second_offset, np.append(random.normal(size=HIDDEN) * 0.1, [0, 0]),
              np.array([DOWN - 0.3, 0]), np.array([UP + DOWN, 0]), np.array([top[3] - UP]), top[3] - at[:-1],
              np.ones(1)]
    return dense_file(path, weights, biases)


def ask(model: Path, *properties: Any) -> tuple[Any, Path, Path]:
    specification, proof = model.with_suffix(".yaml"), model.with_suffix(".npz")
    specification.write_text(yaml.safe_dump({
        "features": list(LIMITS), "outputs": ["new_replicas"], "properties": list(properties),
        "box": {name: list(walls) for name, walls in LIMITS.items()}}))
    return decide(model, specification, 120.0, certificate=proof), specification, proof


@pytest.mark.parametrize("seed", range(2))
def test_what_an_operator_asks_is_certified_in_a_few_boxes(seed: int, tmp_path: Path) -> None:
    model = policy(tmp_path / "policy.onnx", seed)
    found, specification, proof = ask(
        model, {"monotone": {"features": ["latency", "rate", "utilisation"], "direction": "increasing"}},
        {"range": {"output": "new_replicas", "minimum": 0.999, "maximum": 100.01}},
        {"order": {"upper": "new_replicas", "lower": "replicas", "factor": 0.73, "margin": -0.02}},
        {"order": {"upper": "replicas", "lower": "new_replicas", "factor": 0.45, "margin": -0.02}})
    assert found.status is Status.PROVED, found.reason
    assert sum(part.boxes for part in found.parts) < 1000  # open without end where passes are not cut
    assert check_proof(proof, model, specification).accepted


def test_a_condition_narrows_what_is_asked_and_counterexamples_replay(tmp_path: Path) -> None:
    never_up = {"order": {"upper": "replicas", "lower": "new_replicas", "margin": -0.1, "when": QUIET}}
    found, _, _ = ask(policy(tmp_path / "calm.onnx", quiet=40.0), never_up)
    assert found.status is Status.PROVED, found.reason
    model = policy(tmp_path / "plain.onnx")
    found, _, _ = ask(model, never_up)
    assert found.status is Status.REFUTED
    (point,) = found.witness["points"]
    x = np.array([point["inputs"][name] for name in LIMITS])
    assert run_file(model, x)[0] > x[3] + 0.1 and x[0] <= 50 and x[2] <= 0.2
