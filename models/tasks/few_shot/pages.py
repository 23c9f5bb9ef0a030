"""The reports of few-shot models: those of a supervised model, the runs that it learned from, what it recommends."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.reporting.reading import mapping
from models.tasks.few_shot import sections
from models.tasks.pages import Claim, TitledSection
from models.tasks.supervised.pages import SupervisedPages

Json = Mapping[str, Any]


class FewShotPages(SupervisedPages):
    """Implements `Pages`."""

    def claims(self, evidence: Json | None) -> Sequence[Claim]:
        """That the ends of an interval never cross, and whether the workload is one that the pool speaks for."""
        return sections.claims(evidence)

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """The runs, errors beside simpler predictions, and the recommendation come last."""
        more = [("few-shot", "Few runs", sections.few_shot(evidence))] if mapping(evidence, "few_shot") else []
        return (*super().sections(contract, evidence, scaling, page), *more)

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        """The recommendations."""
        if not any(mapping(entry, "evidence", "few_shot") for entry in entries):
            return ()
        return (("recommendations", "Recommended", (sections.recommendations(entries),)),)

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        """What Optuna chose on the pool."""
        settings = mapping(evidence, "few_shot", "pool", "settings")
        return {f"few_shot.{key}": value for key, value in settings.items()}
