"""Whether onnxruntime computes what a network was read as: compared at points of the box, before anything is believed.

A proof is about the normal form of a file. Should reader and runtime differ on what an operator means, the proof says
nothing about what runs. So `require_agreement` runs the file itself, as it stands and with onnxruntime's default
optimisations (which is how it will be run), at random points of the box, at corners of it and where units of the
network switch, and refuses the file where an output is further from the normal form's than rounding explains. Points
are no proof: in a sliver between units that switch together two meanings may differ and no point be there.

What rounding explains is estimated, for worst cases are of no use here: on a network of ACAS Xu they come to 20 times
the output's range, what happens to a millionth of it. The estimate is Monte Carlo arithmetic (Parker, CSD-970002,
1997): the normal form is executed with every sum of k terms off by a random sign times sqrt(k) u times the sum of
absolute values, u the roundoff of the file's type, besides what its float64 weights were rounded by when they were
multiplied together or cancelled (`Affine.error`), scaled to u. SAFETY times the largest deviation met at any point is
allowed. Where a sum may leave the type's range nothing is compared.

Symbols: n inputs, o outputs, m points. NumPy and onnxruntime alone: controllers' checks use it.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.checker.time_limit import require_time
from models.verification.network.fed_numbers import inward
from models.verification.network.runtime_session import open_session

Array = NDArray[np.float64]


class Boxes(Protocol):
    """Boxes with walls lower, upper (R, n): a part of a claim, for example."""

    @property
    def lower(self) -> Array:
        """(R, n)."""

    @property
    def upper(self) -> Array:
        """(R, n)."""


# Points: uniform ones, and corners of boxes; the same ones for every file, and as many that depend on its digest, so
# that nobody can make a file differ between the former alone.
RANDOM_POINTS, CORNERS, SEED = 24, 16, 0
# Lines in a box on which a unit that switches is looked for, by so many halvings; less of a network of many weights.
SWITCHES, HALVINGS, MOST_PRODUCTS = 24, 40, 2**32
# Unit roundoff of float64, in which the normal form is composed and evaluated.
UNIT = 2.0**-53
# onnxruntime's own tanh and sigmoid are within a few units of roundoff of the true ones, absolutely.
FUNCTION = 16
# Executions with random rounding, and how many times the largest deviation of all is allowed. (Measured on the networks
# of ACAS Xu and on dense ones of 64 to 1024 neurons a layer, in three types: onnxruntime stays below 0.1 times it.)
SAMPLES, SAFETY = 4, 8
SHOWN = 12  # inputs of a point in a message


@dataclass(frozen=True)
class Stage:
    """v = kind(sum over s of matrices[s] @ v[s] + offset). error, offset_error: bounds of |exact - stored|."""

    matrices: Mapping[int, Array]
    offset: Array
    kind: str = "identity"
    leak: float = 0.0
    error: Mapping[int, Array] = field(default_factory=dict)
    offset_error: Array | None = None


def chain_stages(weights: Sequence[Array], biases: Sequence[Array], kinds: Sequence[str]) -> list[Stage]:
    """A chain as the checker reads it; kinds: what stands behind each map but the last."""
    return [Stage({k: w}, b, kind)
            for k, (w, b, kind) in enumerate(zip(weights, biases, (*kinds, "identity"), strict=True))]


def require_agreement(file: bytes, sha256: str, stages: Sequence[Stage], boxes: Sequence[Boxes], where: str,
                      executed: np.dtype[Any] | None = None) -> str:
    """Raises InputError, naming the point and both values, where onnxruntime and the network as read differ.

    Also where onnxruntime does not take the file.

    Args:
        sha256: of the file that was read as these stages.
        executed: the type that the file computes in; None: that of its input. Outputs are rounded to the input's.

    Returns:
        Why the comparison says nothing of some output, "" where it does of all: rounding explains more than it is
        large, or it may overflow.
    """
    if hashlib.sha256(file).hexdigest() != sha256:
        raise InputError(f"model must stay the same while it is read, got another content ({where})")
    sessions = [_Session(file, optimised, where) for optimised in (False, True)]
    filled = [chosen for chosen in boxes if len(chosen.lower)]
    seeds = (SEED, int(sha256, 16))
    x = np.concatenate([points(filled, sessions[0].dtype, seed) for seed in seeds])
    if not len(x):
        return ""
    x = np.concatenate([x, *(switches(stages, filled, sessions[0].dtype, seed) for seed in seeds)])
    nodes = len(onnx.load_model_from_string(file).graph.node)
    taken: np.dtype[Any] = sessions[0].dtype
    expected, allowed = evaluate(stages, x, taken if executed is None else executed, nodes)
    last = np.finfo(taken)
    allowed = allowed + float(last.eps) * np.abs(expected) + float(last.smallest_normal)
    for session in sessions:
        found = np.array([session(row) for row in x]).reshape(expected.shape)
        with np.errstate(invalid="ignore"):  # of infinities
            apart = ~(np.abs(found - expected) <= allowed) & np.isfinite(allowed)
        if apart.any():
            point, output = np.argwhere(apart)[0]
            values = ", ".join(f"{value!r}" for value in x[point].tolist()[:SHOWN])
            more = ", ..." if x.shape[1] > SHOWN else ""
            raise InputError(
                f"network as read must compute what onnxruntime {session.version} computes{session.how}: output "
                f"{output} must be {expected[point, output]:.9g} within {allowed[point, output]:.2g}, got "
                f"{found[point, output]:.9g} at [{values}{more}] ({where})")
    largest, silent = np.abs(expected).max(axis=0), ~(allowed.max(axis=0) <= np.abs(expected).max(axis=0))
    if not silent.any():
        return ""
    output = int(np.argmax(silent))
    return (f"output {output} must be larger than what rounding may add to it, or it cannot be compared with what "
            f"onnxruntime computes: at most {largest[output]:.3g} at the points looked at, and up to "
            f"{allowed[:, output].max():.3g}; store the weights in float64, or take large constants out")


def points(boxes: Sequence[Boxes], dtype: np.dtype[Any], seed: int = SEED) -> Array:
    """Points (m, n) of the type in the boxes: uniform ones and corners, of boxes drawn at random from the seed."""
    rng, found = np.random.default_rng(seed), list[Array]()
    with np.errstate(over="ignore", invalid="ignore"):  # of walls beyond the type
        for k in range(RANDOM_POINTS + CORNERS if boxes else 0):
            chosen = boxes[int(rng.integers(len(boxes)))]
            box = int(rng.integers(len(chosen.lower)))
            low, high = inward(chosen.lower[box], chosen.upper[box], dtype)
            if k < 2:
                found.append((low, high)[k])
            elif k < CORNERS:
                found.append(np.where(rng.random(len(low)) < 0.5, low, high))
            else:
                found.append(_between(low, high, rng))
        x = np.array(found).astype(dtype).astype(np.float64)
    return x[np.isfinite(x).all(axis=1)] if found else x


def switches(stages: Sequence[Stage], boxes: Sequence[Boxes], dtype: np.dtype[Any], seed: int) -> Array:
    """Points (m, n) of the type in the boxes, on both sides of where a unit switches: on a line between two random
    points of a box, of the units whose argument changes its sign one that is drawn at random."""
    rng, ends = np.random.default_rng([seed, 1]), list[Array]()
    weights = sum(matrix.size for stage in stages for matrix in stage.matrices.values())
    with np.errstate(over="ignore", invalid="ignore"):  # of walls beyond the type
        for _ in range(min(SWITCHES, MOST_PRODUCTS // (HALVINGS * max(weights, 1)))):
            chosen = boxes[int(rng.integers(len(boxes)))]
            box = int(rng.integers(len(chosen.lower)))
            low, high = inward(chosen.lower[box], chosen.upper[box], dtype)
            ends.append(np.stack([low, high, *(_between(low, high, rng) for _ in range(2))]))
    lines = np.array([one for one in ends if np.isfinite(one).all()])
    if not len(lines):
        return np.zeros((0, stages[0].matrices[0].shape[1] if 0 in stages[0].matrices else 0))
    low, high, first, last = lines.swapaxes(0, 1)
    switched = (_arguments(stages, first) > 0) != (_arguments(stages, last) > 0)
    of = switched.any(axis=1)
    low, high, first, last, switched = (values[of] for values in (low, high, first, last, switched))
    if not len(first):
        return first
    unit = np.argmax(rng.random(switched.shape) * switched, axis=1)
    rows, begins = np.arange(len(first)), (_arguments(stages, first) > 0)[np.arange(len(first)), unit]
    for _ in range(HALVINGS):
        middle = first / 2 + last / 2
        same = ((_arguments(stages, middle)[rows, unit] > 0) == begins)[:, None]
        first, last = np.where(same, middle, first), np.where(same, last, middle)
    found = np.concatenate([first, last]).astype(dtype).astype(np.float64)
    return np.clip(found, np.tile(low, (2, 1)), np.tile(high, (2, 1)))


def _between(low: Array, high: Array, rng: np.random.Generator) -> Array:
    """A random point of a box; by halves, for a width may exceed the largest number."""
    return np.clip(2 * (low / 2 + (high / 2 - low / 2) * rng.random(len(low))), low, high)


def _arguments(stages: Sequence[Stage], x: Array) -> Array:
    """(m, units) what is given to each unit of an activation at x (m, n)."""
    arguments = [np.zeros((len(x), 0))]
    stage_values(stages, x, arguments=arguments)
    return np.concatenate(arguments, axis=1)


def evaluate(stages: Sequence[Stage], x: Array, dtype: np.dtype[Any], nodes: int) -> tuple[Array, Array]:
    """y (m, o) at x (m, n) in float64, and how far an execution in `dtype` of a file of so many nodes may be from it.

    The latter (o,) is infinite where a sum may leave the type's range.
    """
    exact = stage_values(stages, x)
    rounded = stage_values(stages, np.tile(x, (SAMPLES, 1)), _Rounding(dtype, nodes))
    with np.errstate(invalid="ignore"):  # of infinities
        deviation = np.abs(rounded.reshape(SAMPLES, *exact.shape) - exact).max(axis=(0, 1))
    return exact, np.where(np.isnan(deviation), np.inf, SAFETY * deviation)


class _Rounding:
    """What an execution in a type adds to each value, drawn at random."""

    def __init__(self, dtype: np.dtype[Any], nodes: int) -> None:
        about = np.finfo(dtype)
        self.unit, self.tiny, self.largest = float(about.eps) / 2, float(about.smallest_normal), float(about.max)
        self.nodes, self.rng = nodes, np.random.default_rng(SEED)

    def of_sum(self, stage: Stage, values: Sequence[Array]) -> Array:
        """Of the stage's affine map; infinite where it may overflow."""
        size = sum((np.abs(values[s]) @ np.abs(m).T for s, m in stage.matrices.items()), np.abs(stage.offset))
        composed = sum((np.abs(values[s]) @ e.T for s, e in stage.error.items()),
                       np.zeros(size.shape) if stage.offset_error is None else stage.offset_error)
        terms = sum(m.shape[1] for m in stage.matrices.values()) + self.nodes
        flushed = self.tiny * (terms + sum(np.abs(m).sum(axis=1) for m in stage.matrices.values()))
        off = terms**0.5 * self.unit * size + composed * (self.unit / UNIT) + flushed
        return self._signed(np.where(size <= self.largest / 2, off, np.inf))

    def of_function(self, a: Array) -> Array:
        """Of an activation's value."""
        return self._signed(FUNCTION * self.unit * np.maximum(np.abs(a), self.unit))

    def _signed(self, off: Array) -> Array:
        return np.asarray(off * self.rng.choice((-1.0, 1.0), off.shape))


def stage_values(stages: Sequence[Stage], x: Array, rounding: _Rounding | None = None,
                 arguments: list[Array] | None = None) -> Array:
    """y (m, o) at x (m, n), in float64; with what each execution in another type adds, if any.

    arguments: takes what is given to the units of each activation.
    """
    values = [x]
    with np.errstate(over="ignore", invalid="ignore"):
        for stage in stages:
            require_time()
            z = sum((values[s] @ m.T for s, m in stage.matrices.items()), stage.offset)
            z = z if rounding is None else z + rounding.of_sum(stage, values)
            if arguments is not None and stage.kind != "identity":
                arguments.append(z)
            a = _ACTIVATIONS[stage.kind](z, stage.leak)
            if rounding is not None and stage.kind not in ("identity", "relu"):
                a = a + rounding.of_function(a)
            values.append(a)
    return values[-1]


def _sigmoid(z: Array) -> Array:
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1, small) / (1 + small))


_ACTIVATIONS: Mapping[str, Callable[[Array, float], Array]] = {
    "identity": lambda z, _: z,
    "relu": lambda z, _: np.maximum(z, 0),
    "leaky_relu": lambda z, leak: np.where(z >= 0, z, leak * z),
    "tanh": lambda z, _: np.tanh(z),
    "sigmoid": lambda z, _: _sigmoid(z),
}


class _Session:
    """The file in onnxruntime on one thread. Called with x (n,): outputs (o,) as float64."""

    def __init__(self, file: bytes, optimised: bool, where: str) -> None:
        import onnxruntime

        require_time()
        self.where, self.version = where, onnxruntime.__version__
        self.how = ", with its default optimisations" if optimised else ""
        try:
            self.session = open_session(file, optimised)
        except Exception as error:  # it has no family of errors
            raise self._refused(error) from error
        (entry,) = self.session.get_inputs()
        self.name = entry.name
        self.shape = [size if isinstance(size, int) else 1 for size in entry.shape]
        self.dtype = np.dtype({"tensor(float)": np.float32, "tensor(double)": np.float64,
                               "tensor(float16)": np.float16}[entry.type])

    def __call__(self, x: Array) -> Array:
        require_time()
        try:
            (y,) = self.session.run(None, {self.name: x.astype(self.dtype).reshape(self.shape)})
        except Exception as error:  # it has no family of errors
            raise self._refused(error) from error
        return np.asarray(y, dtype=np.float64).reshape(-1)

    def _refused(self, error: Exception) -> InputError:
        return InputError(f"model must run in onnxruntime {self.version}{self.how}, which says: "
                          f"{said_by_runtime(error)} ({self.where})")


def said_by_runtime(error: Exception) -> str:
    """onnxruntime's message in one line, without its source line and signature."""
    return re.sub(r"/\S*:\d+ .*?\) (?=[A-Z])", " ", " ".join(str(error).split()))
