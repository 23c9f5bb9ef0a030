"""New runs of a workload -> its embedding, for a bundle whose model takes one.

    encoder = RunEncoder(check_bundle(folder, key))
    found = encoder.encode([({"nodes": 8, "type=m4": 1, ...}, 412.0)])     # one to three runs, seconds
    predictor.predict({**configuration, **found.inputs})

The proof covers every embedding in the contract's box; one that lies outside is moved to its edge by the predictor, as
any input is, and reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import onnxruntime

from feature_store.errors import InputError, RefusedError
from serving.bundle import CheckedBundle
from serving.contract import ENCODER_FILE, EmbeddingSpec
from serving.inputs import InputReader
from serving.session import load_session

# Squared distance in units of each column's smallest step: what float32 leaves between a configuration and itself.
SAME_CONFIGURATION_STEPS = 1e-4
# What float32 holds above 0 with all its digits.
LEAST_TARGET, MOST_TARGET = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Embedding:
    """What an encoder says of a workload's runs.

    Attributes:
        inputs: the model's embedding inputs by name.
        similarity: to the nearest workload of the pool; out_of_distribution: whether it is below the threshold.
    """

    inputs: Mapping[str, float]
    similarity: float
    out_of_distribution: bool


class RunEncoder:
    """The encoder of a checked bundle. Threads may share it."""

    def __init__(self, bundle: CheckedBundle) -> None:
        """Raises RefusedError: the bundle's model takes no embedding, or its encoder cannot be loaded."""
        if bundle.contract.embedding is None:
            raise RefusedError(f"bundle must be of a model that takes an embedding, got none ({bundle.folder})")
        self.spec: EmbeddingSpec = bundle.contract.embedding
        self._reader = InputReader(bundle.contract)
        self._rest = {item.name: item.minimum for item in bundle.contract.inputs if item.name in self.spec.inputs}
        self._columns = [bundle.contract.input_names.index(name) for name in self.spec.configuration]
        self._session = _open(bundle, self.spec)

    def encode(self, runs: Sequence[tuple[Mapping[str, Any], float]]) -> Embedding:
        """Of one to `spec.runs` runs: (configuration by input name, what was measured).

        Raises:
            InputError: no run or too many, a configuration that the pool does not have, or a target that is not above
                0.
        """
        if not 1 <= len(runs) <= self.spec.runs:
            raise InputError(f"encoder must be given 1 to {self.spec.runs} runs, got {len(runs)}")
        configuration = np.zeros((self.spec.runs, len(self._columns)), dtype=np.float32)
        target, is_run = np.ones(self.spec.runs, dtype=np.float32), np.zeros(self.spec.runs, dtype=np.float32)
        for k, (row, measured) in enumerate(runs):
            values, outside = self._reader.read_row({**row, **self._rest})
            if outside:
                raise InputError(f"configuration of a run must be one of the pool's, got {outside[0]} outside of them "
                                 f"(run {k})")
            is_number = isinstance(measured, Real) and not isinstance(measured, bool)
            if not is_number or not LEAST_TARGET <= measured <= MOST_TARGET:
                raise InputError(f"{self.spec.target} must be a number above 0 that float32 holds, got {measured!r} "
                                 f"(run {k})")
            configuration[k], target[k], is_run[k] = values[0, self._columns], measured, 1.0
        embedding, similarity, unknown = self._session.run(
            ["embedding", "similarity", "unknown"],
            {"configuration": configuration, "target": target, "there": is_run})
        if unknown[0] > SAME_CONFIGURATION_STEPS:
            raise InputError("configuration of every run must be one of the pool's, got one that is "
                             f"{float(unknown[0]) ** 0.5:.2g} steps of its columns away from the nearest")
        if not (np.isfinite(embedding).all() and np.isfinite(similarity).all()):
            raise RefusedError(f"encoder: expected finite numbers, got {embedding.tolist()}")
        return Embedding(dict(zip(self.spec.inputs, map(float, embedding), strict=True)), float(similarity[0]),
                         not similarity[0] >= self.spec.threshold)


def _open(bundle: CheckedBundle, spec: EmbeddingSpec) -> onnxruntime.InferenceSession:
    session = load_session(bundle.files[ENCODER_FILE], "encoder", str(bundle.folder))
    sides = [{item.name: list(item.shape) for item in side} for side in (session.get_inputs(), session.get_outputs())]
    expected = [{"configuration": [spec.runs, len(spec.configuration)], "target": [spec.runs], "there": [spec.runs]},
                {"embedding": [len(spec.inputs)], "similarity": [1], "unknown": [1]}]
    if sides != expected:
        raise RefusedError(f"encoder: expected the inputs and outputs of its contract, got {sides} ({bundle.folder})")
    return session
