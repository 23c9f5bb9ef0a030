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
from models.verification.network.onnx_reader import model_bytes
from models.verification.network.runtime_agreement import Stage, said_by_runtime
from models.verification.network.runtime_session import open_session
from models.verification.obligations.compile import Step
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

    def __init__(self, model: Path) -> None:
        import onnxruntime

        require_time()
        self.model, self.version = model, onnxruntime.__version__
        try:
            self.session = open_session(model_bytes(model), optimised=False)
        except Exception as error:  # it has no family of errors
            raise self._refused(error) from error
        types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
        (entry,) = self.session.get_inputs()
        self.dtype, self._name = types[entry.type], entry.name
        self._shape = [size if isinstance(size, int) else 1 for size in entry.shape]

    def __call__(self, x: FloatArray) -> FloatArray:
        """The outputs (o,) at x (n,)."""
        fed = self.representable(x).astype(self.dtype).reshape(self._shape)
        try:
            (y,) = self.session.run(None, {self._name: fed})
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
    def ends(witness: OutputWitness, step: Step) -> tuple[FloatArray, FloatArray]:
        """The two points that differ in the step's feature."""
        low, high = witness.x.copy(), witness.x.copy()
        low[step.feature], high[step.feature] = step.low, step.high
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

    def step(self, witness: OutputWitness, step: Step, unsafe: UnsafeSet | None = None) -> bool:
        """The same for two values of a feature. unsafe: whose boxes the witness's number counts; None: the step's."""
        unsafe = step.unsafe if unsafe is None else unsafe
        low, high = (self.representable(x) for x in self.ends(witness, step))
        for x, value in ((low, step.low), (high, step.high)):
            lower, upper = unsafe.lower[witness.box].copy(), unsafe.upper[witness.box].copy()
            lower[step.feature] = upper[step.feature] = value
            if not _lies(x, lower, upper):
                return False
        with np.errstate(invalid="ignore"):  # of two infinities; NaN is not unsafe
            change = (self(high) - self(low))[[step.output]]
        return _unsafe(unsafe, witness.box, change)


def _lies(x: FloatArray, lower: FloatArray, upper: FloatArray) -> bool:
    """Whether the numbers fed for a point lie in its box (n,); an input held at one number is fed with the nearest."""
    return bool(_within(x, lower[None], upper[None]).all())


def _within(x: FloatArray, lower: FloatArray, upper: FloatArray) -> NDArray[np.bool_]:
    """The same for each of the boxes (R, n)."""
    return np.asarray((np.isfinite(x) & ((x >= lower) & (x <= upper) | held(lower, upper))).all(axis=1))


def _unsafe(unsafe: UnsafeSet, box: int, outputs: FloatArray) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):  # of infinite outputs; NaN is not unsafe
        return bool(unsafe.violation(np.array([box]), outputs[None])[0] >= 0)
