"""Environments that record what they are asked for: which episodes, by whom."""

from typing import Any, NamedTuple

from tests.environments.backlog import Backlog


class Asked(NamedTuple):
    """One draw of episodes; role: of the environment that was asked."""

    role: str
    split: str
    count: int
    seed: int


class Recording(Backlog):
    """A backlog and its differentiable twin, another object; both write into one list."""

    def __init__(self, asked: list[Asked], role: str = "exact") -> None:
        super().__init__()
        self.asked, self.role = asked, role

    @property
    def differentiable(self) -> "Recording":
        return Recording(self.asked, "differentiable")

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "", applications: Any = None) -> Any:
        self.asked.append(Asked(self.role, split, count, seed))
        return super().draw(split, count, steps, seed, scenario, applications)
