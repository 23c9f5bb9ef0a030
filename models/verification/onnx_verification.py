"""A property of an ONNX file, decided: what `assay verify` does.

The property is a SPEC.yaml (specification_language.py) or a VNN-LIB file (vnnlib.py). A counterexample counts only if
onnxruntime, on the file itself and in the precision that ships, shows it at a point inside of the box: its inputs are
numbers of that precision. Graph optimisations of onnxruntime are off in the replay, which computes what the file
says (with them on, version 1.31.1 was seen to change results of fused batch normalisations).
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.verification.branch_and_bound import Budget, Progress, SearchResult
from models.verification.compile import obligations
from models.verification.graph import FloatArray
from models.verification.onnx_reader import OnnxNetwork, read_onnx
from models.verification.output_falsification import OutputWitness
from models.verification.prove import prove_outputs, prove_slopes
from models.verification.share import check_share
from models.verification.specification import Specification
from models.verification.specification_language import read_specification
from models.verification.unsafe_set import UnsafeSet
from models.verification.verdict import Status, Witness
from models.verification.vnnlib import read_vnnlib

OnPart = Callable[[str, Progress], None] | None
REAL = ("Proved is the network in real arithmetic, with the weights stored in the file; execution in floating point "
        "adds its rounding.")


@dataclass(frozen=True)
class Part:
    """One kind of obligation and how its proof ended."""

    name: str
    status: Status
    reason: str
    seconds: float
    boxes: int
    proved_share: float
    lower_bound: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        bound = None if np.isnan(self.lower_bound) else self.lower_bound
        return {"name": self.name, "verdict": str(self.status), "reason": self.reason, "seconds": self.seconds,
                "boxes": self.boxes, "proved_share": self.proved_share, "lower_bound": bound}


@dataclass(frozen=True)
class OnnxVerdict:
    """The verdict on a file and a property; witness: {"points": [{"inputs", "outputs"}], ...} or None."""

    status: Status
    parts: tuple[Part, ...]
    statement: str
    witness: dict[str, Any] | None
    seconds: float
    model_sha256: str
    specification_sha256: str

    @property
    def verdict(self) -> str:
        """PROVED, REFUTED, UNKNOWN or TIMEOUT."""
        return str(self.status)

    def to_json(self) -> dict[str, Any]:
        """The document that --json prints."""
        return {"verdict": self.verdict, "reason": self.parts[-1].reason if len(self.parts) == 1 else
                f"{sum(part.status is Status.PROVED for part in self.parts)} of {len(self.parts)} parts proved",
                "statement": self.statement, "seconds": self.seconds, "boxes": sum(part.boxes for part in self.parts),
                "proved_share": min(part.proved_share for part in self.parts),
                "parts": [part.to_json() for part in self.parts], "witness": self.witness,
                "model_sha256": self.model_sha256, "specification_sha256": self.specification_sha256}


def verify_onnx(model: Path, specification: Path, seconds: float = 120.0, points: FloatArray | None = None,
                seed: int = 0, on_progress: OnPart = None) -> OnnxVerdict:
    """Decides the property of the network.

    Args:
        seconds: limit in all, > 0; points: (m, n) inputs at which the search for counterexamples starts.
        on_progress: called with the part's name after every round.

    Raises:
        InputError: a file that cannot be read or is not supported; a property that does not fit the network; points
            of another width; a limit that is not positive.
    """
    if not seconds > 0:
        raise InputError(f"timeout must be positive, got {seconds}")
    network = read_onnx(model)
    if points is not None and (points.ndim != 2 or points.shape[1] != network.graph.inputs):
        raise InputError(f"points must have {network.graph.inputs} columns, got shape {points.shape}")
    digest = hashlib.sha256(specification.read_bytes()).hexdigest()
    run = _Run(network, _Replay(model, network), seconds, points, seed, on_progress)
    if specification.name.endswith((".vnnlib", ".vnnlib.gz")):
        names = [f"X_{i}" for i in range(network.graph.inputs)], [f"Y_{i}" for i in range(network.graph.outputs)]
        statement = f"No input in the boxes of {specification.name} reaches its unsafe outputs. {REAL}"
        run.outputs("outputs", read_vnnlib(specification, network.graph.inputs, network.graph.outputs))
    else:
        claim = read_specification(specification, network.graph.inputs, network.graph.outputs)
        names, statement = (list(claim.feature_names), list(claim.output_names)), claim.statement
        run.specification(claim)
    return OnnxVerdict(run.status, tuple(run.parts), statement, run.described(*names), time.monotonic() - run.started,
                       network.sha256, digest)


class _Run:
    """Works off the parts of a property within one time limit; a refuted part ends it."""

    def __init__(self, network: OnnxNetwork, replay: "_Replay", seconds: float, points: FloatArray | None, seed: int,
                 on_progress: OnPart) -> None:
        self.network, self.replay, self.points, self.seed = network, replay, points, seed
        self.on_progress, self.seconds = on_progress, seconds
        self.started = time.monotonic()
        self.parts: list[Part] = []
        self.witness: list[FloatArray] = []

    @property
    def status(self) -> Status:
        """The worst of the parts: one refuted refutes the whole."""
        found = {part.status for part in self.parts}
        for status in (Status.REFUTED, Status.TIMEOUT, Status.UNKNOWN):
            if status in found:
                return status
        return Status.PROVED

    def specification(self, claim: Specification) -> None:
        due = obligations(self.network.graph, claim)
        if due.slopes is not None:
            def accept(witness: Witness) -> bool:
                return self.replay.pair(witness, claim)

            def prove(budget: Budget, progress: Any) -> tuple[SearchResult, Any]:
                assert due.slopes is not None
                return prove_slopes(self.network.graph, due.slopes, due.lower, due.upper, budget, self.points,
                                    self.seed, progress, accept=accept)
            found = self._part("monotone", prove)
            if found:
                self.witness = [found[0].low, found[0].high]
        if due.unsafe is not None:
            self.outputs("outputs", due.unsafe)
        for pair in due.differences:
            name = f"{claim.feature_names[pair.feature]} from {pair.low:g} to {pair.high:g}"

            def accept_pair(witness: OutputWitness, pair: Any = pair) -> bool:
                return self.replay.step(witness, pair)

            def prove_pair(budget: Budget, progress: Any, pair: Any = pair, accept: Any = accept_pair) -> Any:
                return prove_outputs(pair.graph, pair.unsafe, budget, None, self.seed, progress, accept)
            step = self._part(name, prove_pair)
            if step:
                self.witness = [self.replay.at(step.x, pair.feature, value) for value in (pair.low, pair.high)]
        for share in due.shares:
            if self.status is Status.REFUTED:
                return
            began = time.monotonic()
            counted = check_share(self.network.graph, share, claim, None, self.seed)
            status = Status.PROVED if counted.holds else \
                Status.REFUTED if counted.upper < share.at_least else Status.UNKNOWN
            self.parts.append(Part("share", status, f"{counted.satisfied} of {counted.samples} samples: between "
                                   f"{counted.lower:.6f} and {counted.upper:.6f} with confidence {share.confidence:g}",
                                   time.monotonic() - began, 0, 1.0, float("nan")))

    def outputs(self, name: str, unsafe: UnsafeSet) -> None:
        def accept(witness: OutputWitness) -> bool:
            return self.replay.inside(witness, unsafe)

        def prove(budget: Budget, progress: Any) -> Any:
            return prove_outputs(self.network.graph, unsafe, budget, self.points, self.seed, progress, accept)
        found = self._part(name, prove)
        if found is not None:
            self.witness = [found.x]

    def _part(self, name: str, prove: Callable[[Budget, Any], tuple[SearchResult, Any]]) -> Any:
        """Runs one part; returns its witness."""
        if self.status is Status.REFUTED:
            return None
        began = time.monotonic()
        left = max(self.seconds - (began - self.started), 1e-3)
        report = self.on_progress
        result, found = prove(Budget(seconds=left), None if report is None else lambda state: report(name, state))
        self.parts.append(Part(name, result.status, result.reason, time.monotonic() - began, result.boxes,
                               result.proved_share, result.lower_bound))
        return found

    def described(self, inputs: list[str], outputs: list[str]) -> dict[str, Any] | None:
        if not self.witness:
            return None
        points = [self.replay.representable(x) for x in self.witness]
        return {"points": [{"inputs": dict(zip(inputs, x.tolist(), strict=True)),
                            "outputs": dict(zip(outputs, self.replay(x).tolist(), strict=True))} for x in points],
                "replayed_with": "onnxruntime"}


class _Replay:
    """Runs the file itself in onnxruntime, one thread, unoptimised. Called with x (n,): outputs (o,) as float64."""

    def __init__(self, model: Path, network: OnnxNetwork) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.network = network
        types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
        self.dtype = types[self.session.get_inputs()[0].type]

    def __call__(self, x: FloatArray) -> FloatArray:
        fed = self.representable(x).astype(self.dtype).reshape(self.network.input_shape)
        return np.asarray(self.session.run(None, {self.network.input_name: fed})[0], dtype=np.float64).reshape(-1)

    def representable(self, x: FloatArray) -> FloatArray:
        """The numbers that the network is fed with for x."""
        return x.astype(self.dtype).astype(np.float64)

    @staticmethod
    def at(x: FloatArray, feature: int, value: float) -> FloatArray:
        """x with another value of a feature."""
        moved = x.copy()
        moved[feature] = value
        return moved

    def inside(self, witness: OutputWitness, unsafe: UnsafeSet) -> bool:
        """Whether the runtime's own outputs are unsafe, at a point that lies in the box exactly."""
        x = self.representable(witness.x)
        lower, upper = unsafe.lower[witness.box], unsafe.upper[witness.box]
        fixed = lower == upper  # the runtime is fed with the nearest number
        if not (((x >= lower) & (x <= upper)) | fixed).all():
            return False
        return bool(unsafe.violation(np.array([witness.box]), self(x)[None])[0] >= 0)

    def pair(self, witness: Witness, claim: Specification) -> bool:
        """Whether the runtime's own outputs stand in the wrong order by more than the tolerance, inside of the box."""
        low, high = self.representable(witness.low), self.representable(witness.high)
        free = claim.lower < claim.upper
        for x in (low, high):
            if not (((x >= claim.lower) & (x <= claim.upper)) | ~free).all():
                return False
        distance = high[witness.feature] - low[witness.feature]
        fall = witness.sign * (self(low) - self(high))[witness.output]
        return bool(distance > 0 and fall > claim.tolerance * distance)

    def step(self, witness: OutputWitness, pair: Any) -> bool:
        """The same for two values of a feature with finitely many."""
        low, high = (self(self.at(witness.x, pair.feature, value)) for value in (pair.low, pair.high))
        return bool(pair.unsafe.violation(np.array([witness.box]), (high - low)[None, [pair.output]])[0] >= 0)
