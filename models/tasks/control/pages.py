"""What a control task shows of its policies: cost, violations and reward beside the rules."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.metrics import finite_number
from models.reporting.document import Cell, Facts, Note, Part, figures
from models.reporting.formatting import number, percent
from models.reporting.reading import mapping
from models.tasks.pages import Columns, Figure, TitledSection

Json = Mapping[str, Any]


class ControlPages:
    """Implements `Pages`."""

    def headline(self, evidence: Json | None) -> Facts:
        """Cost saved at the objective, violations, reward."""
        return Facts((("Cost saved against the best rule", percent(_metric(evidence, "cost_saved")), "at the objective"),
                      ("Violating steps", percent(_metric(evidence, "violating_share")), "of held-out episodes"),
                      ("Mean reward", number(_metric(evidence, "mean_reward")), "of held-out episodes")))

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """The reward in a sentence."""
        text = f"The mean reward is {number(_metric(evidence, 'mean_reward'))}."
        return (("reward", "Reward", (Note(text),)),)

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        """None."""
        return ()

    def columns(self, entries: Sequence[Json]) -> Columns:
        """Cost saved, violations, reward."""
        return Columns((("Held-out episodes", 3),), ("Saved", "Violating", "Reward"),
                       "Saved: cost against the best rule at the objective; violating: share of the steps.")

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        """One workload's cells."""
        return tuple(figures([percent(_metric(evidence, "cost_saved")), percent(_metric(evidence, "violating_share")),
                              number(_metric(evidence, "mean_reward"))]))

    def details(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                page: str) -> tuple[Part, ...]:
        """None."""
        return ()

    def figures(self, evidence: Json | None) -> tuple[Figure, ...]:
        """Of the run's summary."""
        saved, share = _metric(evidence, "cost_saved"), _metric(evidence, "violating_share")
        return (Figure("saved", None if saved is None else 100 * saved, "%", "cost against the best rule"),
                Figure("violating", None if share is None else 100 * share, "%", "steps of held-out episodes"),
                Figure("reward", _metric(evidence, "mean_reward"), "", "the mean of held-out episodes"))

    def badness(self, evidence: Json | None) -> float | None:
        """What is lost against the best rule."""
        saved = _metric(evidence, "cost_saved")
        return None if saved is None else -saved

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        """What the run chose."""
        return {"fallback": mapping(evidence, "fallback").get("name", "")}


def _metric(evidence: Json | None, name: str) -> float | None:
    return finite_number(mapping(evidence, "metrics").get(name))
