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
from typing import Any

from feature_store.errors import InputError
from models.verification.attack.replay import Replay, graph_stages
from models.verification.checker.chain import Chain
from models.verification.checker.time_limit import OutOfTime, time_limit
from models.verification.execution import execution_of
from models.verification.first_look import FirstLook, agrees, prove_roots, queries_of
from models.verification.language.claim import Claim, Part, exact, read_claim, require_readable
from models.verification.language.properties import Share
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import FloatArray
from models.verification.network.onnx_reader import OnnxNetwork, model_bytes, read_onnx
from models.verification.network.runtime_agreement import require_agreement
from models.verification.obligations.compile import PairObligation, RelationObligation
from models.verification.obligations.slopes import Slopes
from models.verification.onnx_verdict import OnnxVerdict, PartVerdict
from models.verification.proof_file import checkable, part_check, write_proof
from models.verification.search.search_result import Budget, Check, Progress, SearchResult
from models.verification.verdict import BoxTree, Status, Witness

GRACE = 1.0  # seconds after which a stage that does not look at the clock itself is ended
DRAWN_BYTES = 16  # of fresh randomness in the inputs that a share is counted on
OnPart = Callable[[str, Progress], None] | None
OnProgress = Callable[[Progress], None] | None


def decide(model: Path, specification: Path, seconds: float = 120.0, points: FloatArray | None = None,
           seed: int = 0, on_progress: OnPart = None, certificate: Path | None = None,
           drawn: str | None = None) -> OnnxVerdict:
    """Decides the property of the network.

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
        run.work()
        try:
            return _ended(run, model, specification, certificate)
        except OutOfTime:
            if run.status is Status.PROVED:
                run.add(Status.TIMEOUT, "execution", f"time budget of {exact(seconds)} s is spent")
            return run.verdict("What its execution adds is not bounded: the time is spent.")


def _begun(model: Path, specification: Path, seconds: float, points: FloatArray | None, seed: int, on_progress: OnPart,
           certificate: Path | None, drawn: str | None) -> "_Run":
    """Everything read, and held against onnxruntime; arguments as of `decide`."""
    started = time.monotonic()
    require_readable(model, specification)
    network = read_onnx(model, seconds)
    if points is not None and (points.ndim != 2 or points.shape[1] != network.graph.inputs):
        raise InputError(f"points must have {network.graph.inputs} columns, got shape {points.shape}")
    digest = _digest(specification)
    claim = read_claim(specification, network.graph, network.number, seconds - (time.monotonic() - started))
    chain = None if certificate is None else checkable(model)
    run = _Run(network, claim, Replay(model, network), seconds, points, seed, on_progress, chain, started,
               (digest, secrets.token_hex(DRAWN_BYTES) if drawn is None else drawn))
    require_agreement(model_bytes(model), network.sha256, graph_stages(network.graph), claim.fed, str(model),
                      network.executed)
    return run


def _ended(run: "_Run", model: Path, specification: Path, certificate: Path | None) -> OnnxVerdict:
    """The verdict, with the proof or with what execution adds."""
    if certificate is not None and run.status is Status.PROVED:
        checked = write_proof(certificate, model, specification, run.trees)
        if not checked.accepted:  # bounds round by their batch: a box at the edge may fail alone
            run.add(Status.UNKNOWN, "certificate", f"the independent checker refused the proof: {checked.reason}")
        return run.verdict(checked.execution, {"file": str(certificate), "leaves": checked.leaves}
                           if checked.accepted else None)
    added = execution_of(model_bytes(model), run.network.graph, run.claim)
    if added.objection and run.status is Status.PROVED:
        run.add(Status.UNKNOWN, "execution", added.objection)
    return run.verdict(added.sentence)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"specification must be a readable file, got {error} ({path})") from error


def _chain(model: Path) -> Chain | None:
    """The network as the checker reads it, where it does."""
    try:
        return checkable(model)
    except InputError:
        return None


def _undecided(status: Status, reason: str) -> SearchResult:
    return SearchResult(status, reason, lower_bound=math.nan, proved_share=0.0, boxes=0)


class _Run:
    """The parts of a claim, which `work` decides within one time limit."""

    def __init__(self, network: OnnxNetwork, claim: Claim, replay: Replay, seconds: float, points: FloatArray | None,
                 seed: int, on_progress: OnPart, chain: Chain | None, started: float, drawn: tuple[str, str]) -> None:
        self.network, self.claim, self.replay, self.points, self.seed = network, claim, replay, points, seed
        self.on_progress, self.seconds = on_progress, seconds
        self.checks = [None if chain is None else part_check(chain, part) for part in claim.parts]
        self.look, self.chain = FirstLook(network.graph, points, seed), chain or _chain(replay.model)
        self.started, (self.specification_sha256, self.drawn) = started, drawn
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
                           time.monotonic() - self.started, self.network.sha256, self.specification_sha256, proof,
                           execution)

    def work(self) -> None:
        """Decides the parts, until one is refuted."""
        for part, check in zip(self.claim.parts, self.checks, strict=True):
            began = time.monotonic()
            result, points = self._decided(part, check)
            self.parts.append(PartVerdict(part.name, result.status, result.reason, time.monotonic() - began,
                                          result.boxes, result.proved_share, result.lower_bound))
            if result.tree is not None:
                self.trees.append(result.tree)
            if result.status is Status.REFUTED:
                self.witness = points
                return

    def _decided(self, part: Part, check: Check | None) -> tuple[SearchResult, list[FloatArray]]:
        """How the search ended, and the witness's points."""
        left, report = self.seconds - (time.monotonic() - self.started), self.on_progress
        if self.interrupted:
            return _undecided(Status.UNKNOWN, "not begun: interrupted"), []
        if left <= 0:
            return _undecided(Status.TIMEOUT, f"not begun: time budget of {exact(self.seconds)} s is spent"), []
        try:
            found = self._look(part)
            if found is not None:
                return found
            left = self.seconds - (time.monotonic() - self.started)
            result, points = self._prove(part, check, Budget(seconds=left), None if report is None else
                                         lambda state: report(part.name, state))
        except KeyboardInterrupt:
            self.interrupted = True
            return _undecided(Status.UNKNOWN, "interrupted"), []
        except OutOfTime:
            return _undecided(Status.TIMEOUT, f"time budget of {exact(self.seconds)} s is spent"), []
        self.interrupted = result.interrupted
        return result, points

    def _look(self, part: Part) -> tuple[SearchResult, list[FloatArray]] | None:
        """The part decided without the search; None where it takes one."""
        look, replay, graph = self.look, self.replay, self.network.graph
        points: list[FloatArray] = []
        match part.obligation:
            case Slopes() as slopes:
                pair = look.slopes(slopes, part.lower, part.upper, self._counts(part))
                points = [] if pair is None else [pair.low, pair.high]
            case UnsafeSet() as unsafe:
                found = look.outputs(graph, unsafe, lambda witness: replay.inside(witness, unsafe))
                points = [] if found is None else [found.x]
            case RelationObligation() as relation:
                found = look.outputs(relation.graph, relation.unsafe,
                                     lambda witness: replay.related(witness, relation.unsafe))
                points = [] if found is None else [found.x]
            case PairObligation() as step:
                found = look.outputs(step.graph, step.unsafe, lambda witness: replay.step(witness, step))
                points = [] if found is None else list(replay.ends(found, step))
            case Share():
                return None
        if points:
            return SearchResult(Status.REFUTED, "a counterexample was found", math.nan, 0.0, 0), points
        if self.chain is None or not agrees(self.chain, graph, part.lower, part.upper):
            return None
        proved = prove_roots(self.chain, part_check(self.chain, part), *part.proved, queries_of(part.obligation))
        return None if proved is None else (proved, [])

    def _counts(self, part: Part) -> Callable[[Witness], bool]:
        """Whether a pair in the wrong order replays in the part's boxes."""
        return lambda witness: self.replay.pair(witness, part.lower, part.upper,
                                                self.claim.given.slope(witness.feature, witness.output))

    def _prove(self, part: Part, check: Check | None, budget: Budget,
               report: OnProgress) -> tuple[SearchResult, list[FloatArray]]:
        if isinstance(part.obligation, Share):
            return self._count(part.obligation), []
        # torch, which the first look does without, takes a second to import
        from models.verification.search.branch_and_bound import Query
        from models.verification.search.checked_query import CheckedQuery
        from models.verification.search.derivative_query import DerivativeQuery
        from models.verification.search.output_query import OutputQuery
        from models.verification.search.prove import prove_outputs, prove_slopes

        graph, points, seed, replay = self.network.graph, self.points, self.seed, self.replay

        def checked(query: Callable[[], Query]) -> Query | None:
            return None if check is None else CheckedQuery(query(), check)

        match part.obligation:
            case Slopes() as slopes:
                result, pairs = prove_slopes(
                    graph, slopes, part.lower, part.upper, budget, points, seed, report,
                    checked(lambda: DerivativeQuery(graph, slopes)), proved=part.proved,
                    accept=self._counts(part), wanted=1)
                return result, [pairs[0].low, pairs[0].high] if pairs else []
            case UnsafeSet() as unsafe:
                result, found = prove_outputs(
                    graph, unsafe, budget, points, seed, report, lambda witness: replay.inside(witness, unsafe),
                    checked(lambda: OutputQuery(graph, unsafe)), part.proved)
                return result, [found.x] if found else []
            case RelationObligation() as relation:
                result, found = prove_outputs(
                    relation.graph, relation.unsafe, budget, points, seed, report,
                    lambda witness: replay.related(witness, relation.unsafe),
                    checked(lambda: OutputQuery(relation.graph, relation.unsafe)), part.proved)
                return result, [found.x] if found else []
            case PairObligation() as pair:
                result, found = prove_outputs(
                    pair.graph, pair.unsafe, budget, None, seed, report, lambda witness: replay.step(witness, pair),
                    checked(lambda: OutputQuery(pair.graph, pair.unsafe)), part.proved)
                return result, list(replay.ends(found, pair)) if found else []

    def _count(self, share: Share) -> SearchResult:
        from models.verification.obligations.share import check_share, sample_seed  # imports SciPy

        seed = sample_seed(self.network.sha256, self.specification_sha256, self.drawn)
        counted = check_share(self.network.graph, share, self.claim.given, seed=seed)
        status = Status.PROVED if counted.holds else \
            Status.REFUTED if counted.upper < share.at_least else Status.UNKNOWN
        reason = (f"{counted.satisfied} of {counted.samples} samples: between {exact(counted.lower)} and "
                  f"{exact(counted.upper)} with confidence {exact(share.confidence)}, drawn with {self.drawn}")
        return SearchResult(status, reason, math.nan, 1.0, 0)

    def described(self) -> dict[str, Any] | None:
        """The witness by the names of its inputs and outputs; None where there is none."""
        if not self.witness:
            return None
        inputs, outputs = self.claim.feature_names, self.claim.output_names
        points = [self.replay.representable(x) for x in self.witness]
        return {"points": [{"inputs": dict(zip(inputs, x.tolist(), strict=True)),
                            "outputs": dict(zip(outputs, map(_plain, self.replay(x).tolist()), strict=True))}
                           for x in points],
                "units": dict(self.claim.units), "replayed_with": "onnxruntime"}


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else json.dumps(value)
