"""What a table controller shows: its mean reward."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.metrics import finite_number
from models.reporting.document import Cell, Facts, Note, Part, figures
from models.reporting.formatting import number
from models.reporting.reading import mapping
from models.tasks.pages import Claim, Columns, Figure, Paired, TitledSection, paired, same_cases_of

Json = Mapping[str, Any]


class TableControllerPages:
    """Implements `Pages`."""

    def headline(self, evidence: Json | None, gates: Json | None) -> Facts:
        return Facts((("Mean reward", number(_reward(evidence), "cores"), "over the same episodes for every version"),))

    def claims(self, evidence: Json | None) -> Sequence[Claim]:
        return ()

    def paired(self, evidence: Json) -> Sequence[Paired]:
        return (paired(same_cases_of(evidence), "episode"),)

    def worst(self, evidence: Json | None) -> tuple[Part, ...]:
        return ()

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        return (("reward", "Reward", (Note(f"The mean reward is {number(_reward(evidence), 'cores')}."),)),)

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        return ()

    def columns(self, entries: Sequence[Json]) -> Columns:
        return Columns((("Reward", 1),), ("mean",), "Reward: minus cores, and minus latency above its objective.")

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        return figures([number(_reward(evidence))])

    def figures(self, evidence: Json | None) -> tuple[Figure, ...]:
        return (Figure("reward", _reward(evidence), "cores", "the mean over the same episodes"),)

    def badness(self, evidence: Json | None) -> float | None:
        reward = _reward(evidence)
        return None if reward is None else -reward

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        return {}


def _reward(evidence: Json | None) -> float | None:
    return finite_number(mapping(evidence, "metrics").get("mean_reward"))
