"""Counterexamples run again where the network will run: in onnxruntime, on the file, in the precision that ships.

Inputs are numbers of that precision, inside of the box. An input that the box holds at one number is fed with the
nearest one that the precision has (fed_numbers.py). Graph optimisations of onnxruntime are off: it computes what the
file says (with them on, version 1.31.1 was seen to change results of fused batch normalisations). That it computes the
normal form at all is checked before, by runtime_agreement.py, on `graph_stages`.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.attack.output_witness import OutputWitness
from models.verification.checker.time_limit import require_time
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.fed_numbers import held
from models.verification.network.graph import FloatArray, Graph
from models.verification.network.onnx_reader import OnnxNetwork, model_bytes
from models.verification.network.runtime_agreement import Stage, said_by_runtime
from models.verification.network.runtime_session import open_session
from models.verification.obligations.compile import PairObligation
from models.verification.verdict import Witness


def graph_stages(graph: "Graph") -> list[Stage]:
    """The normal form that is proved."""
    kinds = [*((layer.kind, layer.leak) for layer in graph.layers), ("identity", 0.0)]
    return [Stage(a.matrices, a.offset, kind, leak, a.error, a.offset_error)
            for a, (kind, leak) in zip(graph.affines, kinds, strict=True)]


class Replay:
    """Runs the file itself in onnxruntime, one thread, unoptimised. Called with x (n,): outputs (o,) as float64.

    Raises InputError, also when it is called, where onnxruntime does not take the file.
    """

    def __init__(self, model: Path, network: OnnxNetwork) -> None:
        import onnxruntime

        require_time()
        self.model, self.network, self.version = model, network, onnxruntime.__version__
        try:
            self.session = open_session(model_bytes(model), optimised=False)
        except Exception as error:  # it has no family of errors
            raise self._refused(error) from error
        types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
        self.dtype = types[self.session.get_inputs()[0].type]

    def __call__(self, x: FloatArray) -> FloatArray:
        """The outputs (o,) at x (n,)."""
        fed = self.representable(x).astype(self.dtype).reshape(self.network.input_shape)
        try:
            (y,) = self.session.run(None, {self.network.input_name: fed})
        except Exception as error:  # it has no family of errors
            raise self._refused(error) from error
        return np.asarray(y, dtype=np.float64).reshape(-1)

    def _refused(self, error: Exception) -> InputError:
        return InputError(f"model must run in onnxruntime {self.version}, which says: {said_by_runtime(error)} "
                          f"({self.model})")

    def representable(self, x: FloatArray) -> FloatArray:
        """The numbers that the network is fed with for x; infinite beyond the precision."""
        with np.errstate(over="ignore"):
            return x.astype(self.dtype).astype(np.float64)

    @staticmethod
    def ends(witness: OutputWitness, pair: PairObligation) -> tuple[FloatArray, FloatArray]:
        """The two points that differ in the pair's feature."""
        low, high = witness.x.copy(), witness.x.copy()
        low[pair.feature], high[pair.feature] = pair.low, pair.high
        return low, high

    def inside(self, witness: OutputWitness, unsafe: UnsafeSet) -> bool:
        """Whether the runtime's own outputs are unsafe, at a point that lies in the box exactly."""
        x, box = self.representable(witness.x), witness.box
        return _lies(x, unsafe.lower[box], unsafe.upper[box]) and _unsafe(unsafe, box, self(x))

    def related(self, witness: OutputWitness, unsafe: UnsafeSet) -> bool:
        """The same for an unsafe set over outputs and inputs: over what the file gives for what it is fed with."""
        x, box = self.representable(witness.x), witness.box
        return _lies(x, unsafe.lower[box], unsafe.upper[box]) and _unsafe(unsafe, box, np.concatenate([self(x), x]))

    def pair(self, witness: Witness, lower: FloatArray, upper: FloatArray, slope: float) -> bool:
        """Whether the runtime's own outputs stand in the wrong order by more than `slope` allows.

        Both points must lie in one of the boxes with walls lower, upper (R, n).
        """
        low, high = self.representable(witness.low), self.representable(witness.high)
        if not (_within(low, lower, upper) & _within(high, lower, upper)).any():
            return False
        distance = high[witness.feature] - low[witness.feature]
        with np.errstate(invalid="ignore"):  # of two infinities; NaN is no fall
            fall = witness.sign * (self(low) - self(high))[witness.output]
        return bool(distance > 0 and fall > slope * distance)

    def step(self, witness: OutputWitness, pair: PairObligation) -> bool:
        """The same for two values of a feature with finitely many."""
        low, high = (self.representable(x) for x in self.ends(witness, pair))
        for x, value in ((low, pair.low), (high, pair.high)):
            lower, upper = pair.unsafe.lower[witness.box].copy(), pair.unsafe.upper[witness.box].copy()
            lower[pair.feature] = upper[pair.feature] = value
            if not _lies(x, lower, upper):
                return False
        with np.errstate(invalid="ignore"):  # of two infinities; NaN is not unsafe
            change = (self(high) - self(low))[[pair.output]]
        return _unsafe(pair.unsafe, witness.box, change)


def _lies(x: FloatArray, lower: FloatArray, upper: FloatArray) -> bool:
    """Whether the numbers fed for a point lie in its box (n,); an input held at one number is fed with the nearest."""
    return bool(_within(x, lower[None], upper[None]).all())


def _within(x: FloatArray, lower: FloatArray, upper: FloatArray) -> NDArray[np.bool_]:
    """The same for each of the boxes (R, n)."""
    return np.asarray((np.isfinite(x) & ((x >= lower) & (x <= upper) | held(lower, upper))).all(axis=1))


def _unsafe(unsafe: UnsafeSet, box: int, outputs: FloatArray) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):  # of infinite outputs; NaN is not unsafe
        return bool(unsafe.violation(np.array([box]), outputs[None])[0] >= 0)
