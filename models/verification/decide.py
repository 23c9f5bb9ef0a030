"""A property of an ONNX file, decided: what `assay verify` does, and the pipeline with every file that ships.

The property is a SPEC.yaml or a VNN-LIB file (claim.py). A counterexample counts only if onnxruntime shows it on the
file itself (replay.py). The parts of a property are decided in turn. One that is refuted ends the run; after an
interrupt (Ctrl-C) and when the time is over, the parts that are left count as not begun.
"""

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from feature_store.errors import InputError
from models.verification.attack.replay import Replay
from models.verification.checker.time_limit import OutOfTime, time_limit
from models.verification.decide_network import NetworkDecider
from models.verification.execution import Execution
from models.verification.language.claim import Claim, Part, exact, require_readable
from models.verification.memory import is_lack_of_memory
from models.verification.network.graph import FloatArray
from models.verification.network.onnx_reader import model_bytes
from models.verification.onnx_verdict import OnnxVerdict, PartVerdict
from models.verification.proof_file import write_proof
from models.verification.search.search_result import Progress, SearchResult
from models.verification.trees.decide_forest import ForestDecider
from models.verification.trees.forest_reader import has_forest
from models.verification.verdict import BoxTree, Status

NO_MEMORY = "the memory that it may take is spent"
GRACE = 1.0  # seconds after which a stage that does not look at the clock itself is ended
DRAWN_BYTES = 16  # of fresh randomness in the inputs that a share is counted on
OnPart = Callable[[str, Progress], None] | None
OnProgress = Callable[[Progress], None] | None


def decide(model: Path, specification: Path, seconds: float = 120.0, points: FloatArray | None = None,
           seed: int = 0, on_progress: OnPart = None, certificate: Path | None = None,
           drawn: str | None = None) -> OnnxVerdict:
    """Decides the property of the network or forest.

    Args:
        seconds: limit in all, reading included, > 0; points: (m, n) inputs at which the search for counterexamples
            starts.
        on_progress: called with the part's name after every round.
        certificate: where a proof is written that can be checked again (proof_file.py). Boxes then count as proved
            only if the independent checker proves them too.
        seed: of the search for counterexamples, >= 0.
        drawn: hex bits of an earlier verdict's share, to count the same inputs again; None: fresh ones.

    Raises:
        InputError: a file that cannot be read or is not supported, by onnxruntime either; a property that does not
            fit the network; points of another width; a limit that is not positive; a network or a property that
            certificates cannot be about.
    """
    if not seconds > 0:
        raise InputError(f"timeout must be positive, got {seconds}")
    if seed < 0:
        raise InputError(f"seed must be a whole number from 0, got {seed}")
    with time_limit(seconds + GRACE):
        try:
            run = _begun(model, specification, seconds, points, seed, on_progress, certificate, drawn)
        except OutOfTime:
            raise InputError("model and property must be read within the time limit, got no further in "
                             f"{exact(seconds)} s ({model})") from None
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            raise InputError(f"model and property must be read within the memory there is, got {error} ({model})") \
                from error
        run.work()
        try:
            return _ended(run, model, specification, certificate)
        except OutOfTime:
            if run.status is Status.PROVED:
                run.add(Status.TIMEOUT, "execution", f"time budget of {exact(seconds)} s is spent")
            return run.verdict("What its execution adds is not bounded: the time is spent.")
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            if run.status is Status.PROVED:
                run.add(Status.UNKNOWN, "execution", NO_MEMORY)
            return run.verdict("What its execution adds is not bounded: the memory is spent.")


class Decider(Protocol):
    """What is decided: a network (decide_network.py) or a forest (trees/decide_forest.py), with what is claimed of it.

    sha256: of the file; replay: runs it.
    """

    claim: Claim
    sha256: str
    replay: Replay

    def decide(self, part: Part, seconds: float, report: OnProgress) -> tuple[SearchResult, list[FloatArray]]:
        """How the search ended, and the points of the counterexample."""

    def execution(self) -> Execution:
        """What executing the file adds to the claim."""


def _begun(model: Path, specification: Path, seconds: float, points: FloatArray | None, seed: int, on_progress: OnPart,
           certificate: Path | None, drawn: str | None) -> "_Run":
    """Everything read, and held against onnxruntime; arguments as of `decide`."""
    started = time.monotonic()
    require_readable(model, specification)
    digest = _digest(specification)
    decider: Decider
    if has_forest(model_bytes(model)):
        decider = ForestDecider(model, specification, seconds, points)
    else:
        drawn = secrets.token_hex(DRAWN_BYTES) if drawn is None else drawn
        decider = NetworkDecider(model, specification, seconds, points, seed, (digest, drawn), certificate is not None)
    return _Run(decider, seconds, on_progress, started, digest)


def _ended(run: "_Run", model: Path, specification: Path, certificate: Path | None) -> OnnxVerdict:
    """The verdict, with the proof or with what execution adds."""
    if certificate is not None and run.status is Status.PROVED:
        checked = write_proof(certificate, model, specification, run.trees)
        if not checked.accepted:  # bounds round by their batch: a box at the edge may fail alone
            run.add(Status.UNKNOWN, "certificate", f"the independent checker refused the proof: {checked.reason}")
        return run.verdict(checked.execution, {"file": str(certificate), "leaves": checked.leaves}
                           if checked.accepted else None)
    added = run.decider.execution()
    if added.objection and run.status is Status.PROVED:
        run.add(Status.UNKNOWN, "execution", added.objection)
    return run.verdict(added.sentence)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"specification must be a readable file, got {error} ({path})") from error


def _undecided(status: Status, reason: str) -> SearchResult:
    return SearchResult(status, reason, lower_bound=math.nan, proved_share=0.0, boxes=0)


class _Run:
    """The parts of a claim, which `work` decides within one time limit."""

    def __init__(self, decider: Decider, seconds: float, on_progress: OnPart, started: float,
                 specification_sha256: str) -> None:
        self.decider, self.claim = decider, decider.claim
        self.on_progress, self.seconds = on_progress, seconds
        self.started, self.specification_sha256 = started, specification_sha256
        self.parts: list[PartVerdict] = []
        self.trees: list[BoxTree] = []
        self.witness: list[FloatArray] = []
        self.interrupted = False

    @property
    def status(self) -> Status:
        """The worst of the parts: one refuted refutes the whole."""
        found = {part.status for part in self.parts}
        for status in (Status.REFUTED, Status.TIMEOUT, Status.UNKNOWN):
            if status in found:
                return status
        return Status.PROVED

    def add(self, status: Status, name: str, reason: str) -> None:
        """A part that is no search."""
        self.parts.append(PartVerdict(name, status, reason, 0.0, 0, 0.0, math.nan))

    def verdict(self, execution: str, proof: dict[str, Any] | None = None) -> OnnxVerdict:
        """What came out of it."""
        return OnnxVerdict(self.status, tuple(self.parts), self.claim.statement, self.described(),
                           time.monotonic() - self.started, self.decider.sha256, self.specification_sha256, proof,
                           execution)

    def work(self) -> None:
        """Decides the parts, until one is refuted."""
        for part in self.claim.parts:
            began = time.monotonic()
            result, points = self._decided(part)
            self.parts.append(PartVerdict(part.name, result.status, result.reason, time.monotonic() - began,
                                          result.boxes, result.proved_share, result.lower_bound))
            if result.tree is not None:
                self.trees.append(result.tree)
            if result.status is Status.REFUTED:
                self.witness = points
                return

    def _decided(self, part: Part) -> tuple[SearchResult, list[FloatArray]]:
        """How the search ended, and the witness's points."""
        left, report = self.seconds - (time.monotonic() - self.started), self.on_progress
        if self.interrupted:
            return _undecided(Status.UNKNOWN, "not begun: interrupted"), []
        if left <= 0:
            return _undecided(Status.TIMEOUT, f"not begun: time budget of {exact(self.seconds)} s is spent"), []
        try:
            result, points = self.decider.decide(part, left, None if report is None else
                                                 lambda state: report(part.name, state))
        except KeyboardInterrupt:
            self.interrupted = True
            return _undecided(Status.UNKNOWN, "interrupted"), []
        except OutOfTime:
            return _undecided(Status.TIMEOUT, f"time budget of {exact(self.seconds)} s is spent"), []
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            return _undecided(Status.UNKNOWN, NO_MEMORY), []
        self.interrupted = result.interrupted
        return result, points

    def described(self) -> dict[str, Any] | None:
        """The witness by the names of its inputs and outputs; None where there is none."""
        if not self.witness:
            return None
        inputs, outputs, replay = self.claim.feature_names, self.claim.output_names, self.decider.replay
        points = [replay.representable(x) for x in self.witness]
        return {"points": [{"inputs": dict(zip(inputs, x.tolist(), strict=True)),
                            "outputs": dict(zip(outputs, map(_plain, replay(x).tolist()), strict=True))}
                           for x in points],
                "units": dict(self.claim.units), "replayed_with": "onnxruntime"}


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else json.dumps(value)
