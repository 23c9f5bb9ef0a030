"""A tiny task for tests of learners: a queue served at a rate, which is cheap and quick to learn."""

from tests.models.control.leaky_queue import LeakyQueue


class Pond(LeakyQueue):
    """Longer episodes than the wrappers' tests need."""

    steps = 10


class Poisoned(Pond):
    """Rewards are no numbers from the sixth draw for 16 applications on."""

    def __init__(self) -> None:
        self.draws = 0

    def draw(self, split, count, steps, seed, scenario="", applications=None):  # type: ignore[no-untyped-def]
        self.draws += count == 16
        return super().draw(split, count, steps, seed, scenario, applications)

    def step(self, state, targets):  # type: ignore[no-untyped-def]
        state, outcome = super().step(state, targets)
        if self.draws > 5:
            outcome.reward.fill_(float("nan"))
            outcome.cost.fill_(float("nan"))
        return state, outcome
