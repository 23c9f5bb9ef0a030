"""Decides the parts of a claim about a forest."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from feature_store.errors import InputError
from models.verification.attack.output_witness import OutputWitness
from models.verification.attack.replay import Replay
from models.verification.checker.archive import Rejected
from models.verification.checker.time_limit import time_limit
from models.verification.execution import Execution
from models.verification.language.claim import Claim, Part
from models.verification.network.graph import FloatArray
from models.verification.network.onnx_reader import model_bytes
from models.verification.search.search_result import Progress, SearchResult
from models.verification.trees.forest import Forest
from models.verification.trees.forest_check import execution_of_forest, require_forest_runs
from models.verification.trees.forest_claim import read_forest_claim
from models.verification.trees.forest_order import ForestOrder
from models.verification.trees.forest_query import ForestQuery
from models.verification.trees.forest_reader import read_forest
from models.verification.trees.forest_search import decide_part


class ForestDecider:
    """A forest, its claim, and how its parts are decided (decide.py)."""

    def __init__(self, model: Path, specification: Path, seconds: float, points: FloatArray | None) -> None:
        """Reads both files and holds the forest against onnxruntime. points: (m, n), of which only the width is looked
        at: the search finds counterexamples box by box.

        Raises InputError as `decide` does.
        """
        content = model_bytes(model)
        self._forest, self.claim = forest_and_claim(content, specification, seconds, str(model))
        if points is not None and (points.ndim != 2 or points.shape[1] != self._forest.inputs):
            raise InputError(f"points must have {self._forest.inputs} columns, got shape {points.shape}")
        self.sha256, self.replay = hashlib.sha256(content).hexdigest(), Replay(model)

    def decide(self, part: Part, seconds: float, report: Callable[[Progress], None] | None
               ) -> tuple[SearchResult, list[FloatArray]]:
        """How the search ended, and the points of the counterexample."""
        order = part.obligation if isinstance(part.obligation, ForestOrder) else None
        query = ForestQuery.of_part(self._forest, part)

        def accept(witness: OutputWitness) -> bool:
            if order is None:
                return self.replay.inside(witness, query.unsafe)
            return self.replay.step(witness, order.steps[order.step_of[witness.box]], query.unsafe)

        with time_limit(seconds):
            result, witness = decide_part(query, *part.proved, accept, report)
        if witness is None:
            return result, []
        if order is None:
            return result, [witness.x]
        return result, list(self.replay.ends(witness, order.steps[order.step_of[witness.box]]))

    def execution(self) -> Execution:
        """What executing the file adds to the claim."""
        return execution_of_forest(self._forest, self.claim)


def forest_and_claim(content: bytes, specification: Path, seconds: float, where: str) -> tuple[Forest, Claim]:
    """Read, and held against onnxruntime. Raises InputError as `decide` does."""
    try:
        forest = read_forest(content)
    except Rejected as error:
        raise InputError(f"{error} ({where})") from error
    claim = read_forest_claim(specification, forest, seconds)
    require_forest_runs(content, forest, claim, where)
    return forest, claim
