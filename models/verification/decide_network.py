"""Decides the parts of a claim about a network: a first look, then branch and bound, or counting for a share."""

import math
import time
from collections.abc import Callable
from pathlib import Path

from feature_store.errors import InputError
from models.verification.attack.replay import Replay, graph_stages
from models.verification.checker.chain import Chain
from models.verification.execution import Execution, execution_of
from models.verification.first_look import FirstLook, agrees, prove_roots, queries_of
from models.verification.language.claim import Part, exact, read_claim
from models.verification.language.properties import Share
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import FloatArray
from models.verification.network.onnx_reader import model_bytes, read_onnx
from models.verification.network.runtime_agreement import require_agreement
from models.verification.obligations.compile import PairObligation, RelationObligation
from models.verification.obligations.slopes import Slopes
from models.verification.proof_file import checkable, part_check
from models.verification.search.search_result import Budget, Check, Progress, SearchResult
from models.verification.verdict import Status, Witness

OnProgress = Callable[[Progress], None] | None


class NetworkDecider:
    """A network, its claim, and how its parts are decided (decide.py)."""

    def __init__(self, model: Path, specification: Path, seconds: float, points: FloatArray | None, seed: int,
                 drawn: tuple[str, str], certified: bool) -> None:
        """Reads both files and holds the network against onnxruntime.

        Args:
            points: (m, n) where the search for counterexamples starts.
            drawn: digest of the specification and hex bits, of which the inputs of a share follow.
            certified: boxes count as proved only if the independent checker proves them too.

        Raises:
            InputError: as of `decide`.
        """
        started = time.monotonic()
        network = read_onnx(model, seconds)
        if points is not None and (points.ndim != 2 or points.shape[1] != network.graph.inputs):
            raise InputError(f"points must have {network.graph.inputs} columns, got shape {points.shape}")
        self.claim = read_claim(specification, network.graph, network.number, seconds - (time.monotonic() - started))
        chain = checkable(model) if certified else None
        self._checks = {id(part): part_check(chain, part) for part in self.claim.parts} if chain is not None else {}
        self.sha256, self.replay, self._graph = network.sha256, Replay(model), network.graph
        self._first, self._chain = FirstLook(network.graph, points, seed), chain or _chain(model)
        self._content, self._points, self._seed, self._drawn = model_bytes(model), points, seed, drawn
        self._uncompared = require_agreement(self._content, network.sha256, graph_stages(network.graph),
                                             self.claim.fed, str(model), network.executed)

    def decide(self, part: Part, seconds: float, report: OnProgress) -> tuple[SearchResult, list[FloatArray]]:
        """How the search ended, and the points of the counterexample."""
        began = time.monotonic()
        found = self._look(part)
        if found is not None:
            return found
        left = seconds - (time.monotonic() - began)
        return self._prove(part, self._checks.get(id(part)), Budget(seconds=left), report)

    def execution(self) -> Execution:
        """What executing the file adds to the claim."""
        return execution_of(self._content, self._graph, self.claim, self._uncompared)

    def _look(self, part: Part) -> tuple[SearchResult, list[FloatArray]] | None:
        """The part decided without the search; None where it takes one."""
        look, replay, graph = self._first, self.replay, self._graph
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
            case _:
                return None
        if points:
            return SearchResult(Status.REFUTED, "a counterexample was found", math.nan, 0.0, 0), points
        if self._chain is None or not agrees(self._chain, graph, part.lower, part.upper):
            return None
        proved = prove_roots(self._chain, part_check(self._chain, part), *part.proved, queries_of(part))
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

        graph, points, seed, replay = self._graph, self._points, self._seed, self.replay

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
            case _:
                raise AssertionError("of a network nothing else is asked")

    def _count(self, share: Share) -> SearchResult:
        from models.verification.obligations.share import check_share, sample_seed  # imports SciPy

        specification_sha256, drawn = self._drawn
        seed = sample_seed(self.sha256, specification_sha256, drawn)
        counted = check_share(self._graph, share, self.claim.given, seed=seed)
        status = Status.PROVED if counted.holds else \
            Status.REFUTED if counted.upper < share.at_least else Status.UNKNOWN
        reason = (f"{counted.satisfied} of {counted.samples} samples: between {exact(counted.lower)} and "
                  f"{exact(counted.upper)} with confidence {exact(share.confidence)}, drawn with {drawn}")
        return SearchResult(status, reason, math.nan, 1.0, 0)


def _chain(model: Path) -> Chain | None:
    """The network as the checker reads it, where it does."""
    try:
        return checkable(model)
    except InputError:
        return None
