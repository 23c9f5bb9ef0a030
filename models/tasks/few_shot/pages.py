"""The reports of few-shot models: those of a supervised model, the runs that it learned from, what it recommends."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.reporting.document import Cell, Facts, Part
from models.reporting.reading import mapping
from models.tasks.few_shot import sections
from models.tasks.pages import Claim, Columns, Figure, Paired, TitledSection
from models.tasks.supervised.pages import SupervisedPages

Json = Mapping[str, Any]


class FewShotPages:
    """Implements `Pages`; what is not said here is a supervised model's."""

    def __init__(self) -> None:
        self._supervised = SupervisedPages()

    def headline(self, evidence: Json | None, gates: Json | None) -> Facts:
        """As of a supervised model."""
        return self._supervised.headline(evidence, gates)

    def claims(self, evidence: Json | None) -> Sequence[Claim]:
        """That the ends of an interval never cross, and whether the workload is one that the pool speaks for."""
        return sections.claims(evidence)

    def paired(self, evidence: Json) -> Sequence[Paired]:
        """As of a supervised model."""
        return self._supervised.paired(evidence)

    def worst(self, evidence: Json | None) -> tuple[Part, ...]:
        """As of a supervised model."""
        return self._supervised.worst(evidence)

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """The runs, errors beside simpler predictions, and the recommendation come last."""
        more = [("few-shot", "Few runs", sections.few_shot(evidence))] if mapping(evidence, "few_shot") else []
        return (*self._supervised.sections(contract, evidence, scaling, page), *more)

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        """The recommendations."""
        if not any(mapping(entry, "evidence", "few_shot") for entry in entries):
            return ()
        return (("recommendations", "Recommended", (sections.recommendations(entries),)),)

    def columns(self, entries: Sequence[Json]) -> Columns:
        """As of supervised models."""
        return self._supervised.columns(entries)

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        """As of a supervised model."""
        return self._supervised.cells(evidence)

    def figures(self, evidence: Json | None) -> tuple[Figure, ...]:
        """As of a supervised model."""
        return self._supervised.figures(evidence)

    def badness(self, evidence: Json | None) -> float | None:
        """As of a supervised model."""
        return self._supervised.badness(evidence)

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        """What Optuna chose on the pool."""
        settings = mapping(evidence, "few_shot", "pool", "settings")
        return {f"few_shot.{key}": value for key, value in settings.items()}
