"""Predicts from raw telemetry with a checked bundle: what a controller calls.

    predictor = Predictor.from_folder(Path("bundle"), Path("assay.pub"), task="performance", workload="redis")
    predictor.predict({"psi_cpu_some": 0.2, ...}).value        # latency_ms, raw units
    predictor.predict({...}).columns["cpu_limit"]              # of a model with several outputs

A `Predictor` is made of a bundle that `check_bundle` let through, and of nothing else: signature,
SHA-256, proof and gates hold, and the bytes that onnxruntime runs are those that were checked.
Every input is checked and moved into the verified box (serving/inputs.py), so the proof covers every
answer. The output is reported as the model gives it: clipping would hide what was not proved.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from feature_store.errors import InputError, RefusedError
from models.verification.network.runtime_session import open_session
from serving.bundle import CheckedBundle, ProofChecker, check_bundle
from serving.contract import Contract
from serving.inputs import InputReader
from serving.seen_spec import Familiar

if TYPE_CHECKING:
    import pandas as pd

    from models.configuration import Configuration

    Rows: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | pd.DataFrame | NDArray[Any]


@dataclass(frozen=True)
class Prediction:
    """What the model answers.

    Attributes:
        columns: by name of the output, e.g. "latency_ms": one value per row, raw units, as the model gives them.
        units: of the outputs, by name.
        outside_box: inputs, in contract order, that lay outside the verified box in some row and were
            moved to its edge: the answer is the one for the edge.
        rows_outside: number of rows in which that happened.
        out_of_distribution: whether the workload is less like the pool that the model was pretrained on than the
            pool's own workloads are (a model that takes an embedding; any other is never flagged).
        strange: ranges of what training saw that some row is beyond, of a policy (serving/seen_spec.py).
    """

    columns: Mapping[str, tuple[float, ...]]
    units: Mapping[str, str]
    outside_box: tuple[str, ...]
    rows_outside: int
    out_of_distribution: bool = False
    strange: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """Name of the one output.

        Raises:
            InputError: there are several.
        """
        if len(self.columns) != 1:
            raise InputError(f"model must have one output for this, got {', '.join(self.columns)}: use `columns`")
        return next(iter(self.columns))

    @property
    def unit(self) -> str:
        """Unit of the one output. Raises InputError as `output`."""
        return self.units[self.output]

    @property
    def values(self) -> tuple[float, ...]:
        """Of the one output, one per row. Raises InputError as `output`."""
        return self.columns[self.output]

    @property
    def value(self) -> float:
        """The value of a prediction of one row.

        Raises:
            InputError: there are several rows.
        """
        if len(self.values) != 1:
            raise InputError(f"prediction must be of one row to have one value, got {len(self.values)} rows")
        return self.values[0]


class Predictor:
    """One model in onnxruntime behind its input checks. Threads may share it."""

    def __init__(self, bundle: CheckedBundle) -> None:
        self._contract = bundle.contract
        self._sha256 = bundle.sha256
        self._reader = InputReader(bundle.contract)
        self._names = tuple(item.name for item in bundle.contract.outputs)
        self._units = {item.name: item.unit for item in bundle.contract.outputs}
        self._input_name = bundle.contract.model.input
        self._output_names = [bundle.contract.model.output]
        self._session = _open_session(bundle)
        driving = bundle.contract.driving
        #: What training saw, of a policy that says it.
        self.familiar = None if driving is None else Familiar(
            driving.seen, {item.name: item.maximum - item.minimum for item in bundle.contract.inputs})

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        public_key_path: Path,
        *,
        task: str,
        workload: str,
        sha256: str | None = None,
        deep: bool = False,
        checker: ProofChecker | None = None,
    ) -> "Predictor":
        """Checks a bundle folder and loads it; needs neither MLflow nor this project's state.

        Every bundle of the project is signed with the same key, so the signature alone does not say which one this is.

        Args:
            task, workload: what the bundle must be for.
            sha256: digest that names the one bundle that is wanted (`assay check` prints it); None: any of the two.

        Raises:
            RefusedError: the bundle is not signed by this key, not proved, not intact, or another one.
            InputError: the folder or the key cannot be read.
        """
        bundle = check_bundle(folder, public_key_path, deep=deep, checker=checker)
        actual, wanted = (bundle.contract.task, bundle.contract.workload), (task, workload)
        if actual != wanted:
            rule = f"bundle: expected one for {', '.join(wanted)}"
            raise RefusedError(f"{rule}, got one for {', '.join(actual)} ({folder})")
        if sha256 is not None and bundle.sha256 != sha256:
            raise RefusedError(f"bundle must be {sha256}, got {bundle.sha256} ({folder})")
        return cls(bundle)

    @classmethod
    def from_registry(
        cls, configuration: "Configuration", task: str, workload: str, *, least_head: str | None = None
    ) -> "Predictor":
        """Loads the champion of a task and workload, as the promotion ledger names it.

        Args:
            least_head: "<sequence>:<hash>" of an entry that the ledger must hold, as `assay history` prints it. Whoever
                pins the last one he knows cannot be handed an older state, whatever was put back on that machine.

        Raises:
            RefusedError: there is no champion, its bundle does not check, or the ledger's end was cut off.
        """
        # Only this way in needs MLflow.
        from serving.registry import Registry

        return cls(Registry(configuration).open_champion(task, workload, least_head))

    @property
    def contract(self) -> Contract:
        """What goes in, what comes out, what was proved."""
        return self._contract

    @property
    def sha256(self) -> str:
        """Digest that names the bundle, for a decision log."""
        return self._sha256

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """The session itself, for measurements beside plain onnxruntime. It checks nothing."""
        return self._session

    def predict(self, rows: "Rows") -> Prediction:
        """Predicts from raw telemetry.

        Args:
            rows: a mapping of column name to value, a sequence of them, a pandas data frame with exactly
                the contract's columns, or an array [inputs] or [rows, inputs] in the contract's order.

        Raises:
            InputError: naming column, rule, value and row, with the nearest column name or the likely unit.
            RefusedError: the model answered something that is not a finite number.
        """
        if isinstance(rows, Mapping):
            matrix, names = self._reader.read_row(rows)
            return self._answer(matrix, names, int(bool(names)))
        if isinstance(rows, np.ndarray):
            matrix, outside = self._reader.read_array(rows)
        elif hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
            matrix, outside = self._reader.read_frame(rows)
        elif isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
            matrix, outside = self._reader.read_rows(rows)
        else:
            rule = "be a mapping, a sequence of mappings, a data frame or an array"
            raise InputError(f"rows must {rule}, got {type(rows).__name__}")
        moved: list[bool] = np.any(outside, axis=0).tolist()
        names = tuple(
            name for name, is_moved in zip(self._contract.input_names, moved, strict=True) if is_moved
        )
        return self._answer(matrix, names, int(outside.any(axis=1).sum()))

    def _answer(self, matrix: NDArray[np.float32], moved: tuple[str, ...], rows_outside: int) -> Prediction:
        embedding = self._contract.embedding
        return Prediction(self._run(matrix), self._units, moved, rows_outside,
                          embedding is not None and embedding.out_of_distribution, self._strange(matrix))

    def _strange(self, matrix: NDArray[np.float32]) -> tuple[str, ...]:
        if self.familiar is None:
            return ()
        beyond: list[bool] = np.any(self.familiar.beyond(matrix), axis=0).tolist()
        return tuple(name for name, is_beyond in zip(self.familiar.names, beyond, strict=True) if is_beyond)

    def _run(self, matrix: NDArray[np.float32]) -> dict[str, tuple[float, ...]]:
        count = len(self._names)
        values = self._session.run(self._output_names, {self._input_name: matrix})[0].ravel().tolist()
        if len(values) != len(matrix) * count or not all(map(math.isfinite, values)):
            raise RefusedError(
                f"model: expected one finite number a row and output, got {tuple(values[:3])} for {len(matrix)} rows "
                f"({self._contract.workload}, bundle {self._sha256[:12]})"
            )
        return {name: tuple(values[number::count]) for number, name in enumerate(self._names)}


def load_session(model: bytes, what: str, where: str) -> onnxruntime.InferenceSession:
    """A model in onnxruntime on one thread. Raises RefusedError, naming `what` it is and `where` it lay."""
    try:
        return open_session(model)
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        raise RefusedError(f"{what} must load in onnxruntime, got {error} ({where})") from error


def _open_session(bundle: CheckedBundle) -> onnxruntime.InferenceSession:
    session, contract = load_session(bundle.model, "model", str(bundle.folder)), bundle.contract
    inputs = [(item.name, item.type, item.shape[1:]) for item in session.get_inputs()]
    outputs = {item.name: item.shape[-1:] for item in session.get_outputs()}
    if inputs != [(contract.model.input, "tensor(float)", [len(contract.inputs)])]:
        raise RefusedError(
            f"model must take {contract.model.input} float32 [rows, {len(contract.inputs)}] as its contract "
            f"says, got {inputs} ({bundle.folder})"
        )
    if outputs.get(contract.model.output) != [len(contract.outputs)]:
        raise RefusedError(f"model must give {contract.model.output} [rows, {len(contract.outputs)}], got {outputs} "
                           f"({bundle.folder})")
    return session
