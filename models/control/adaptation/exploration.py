"""A new application as the meta learner meets it: episodes come in, the best of them make its embedding.

The encoder is fixed; what changes is the store of trajectories (thesis, section 5.3.2, "Meta learner inference").

Symbols: K policies, A applications, E episodes kept, e embedding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.control.adaptation.inputs import Given
from models.control.adaptation.meta_learner import MetaLearner
from models.control.adaptation.side_by_side import Ran, member_rows, run
from models.control.adaptation.trajectories import TrajectoryStore
from models.control.contract.environment import Environment


class Exploration:
    """What is known of A new applications by each of K policies.

    Args:
        learner: trained.
        applications: A.
        kept: E.
        steps: of an episode.
    """

    def __init__(self, learner: MetaLearner, applications: int, kept: int, steps: int) -> None:
        self.learner, self._applications = learner, applications
        self._members = learner.policy.members[0]
        encoder = learner.encoders[0].settings
        self._most = encoder.trajectories
        self.store = TrajectoryStore.empty(self._members * applications, kept, steps // encoder.stride,
                                            learner.recorder.numbers)

    def embedding(self) -> Tensor:
        """(K, A, e) of the best trajectories so far, as many as in training."""
        rows = torch.arange(self._members * self._applications)
        records, there = self.store.best(rows, self._most)
        shape = (self._members, self._applications)
        return self.learner.embed(records.unflatten(0, shape), there.unflatten(0, shape))

    def told(self) -> Given:
        """The embedding (K A, e), as one episode of every application by every policy is told it."""
        return Given(self.embedding().flatten(0, 1))

    def add(self, found: Ran) -> None:
        """One more episode of every application by every policy, (K, A) or (K A, 1), with its records."""
        if found.records is None:
            raise ValueError("expected a run that was recorded")
        self.store.add(torch.arange(self._members * self._applications), found.records.flatten(0, 1),
                        torch.from_numpy(found.reward).float().flatten())


def explore(environment: Environment, learner: MetaLearner, split: str, applications: Sequence[int], episodes: int,
            steps: int, warm_up: int, seed: int) -> Exploration:
    """Lets every policy act for some episodes in new applications, with what it knows of them by then."""
    known = Exploration(learner, len(applications), max(episodes, 1), steps)
    rows = member_rows(1, learner.policy.members[0], len(applications))
    for episode in range(episodes):
        drawn = environment.draw(split, len(applications), steps + 1, seed + episode, applications=list(applications))
        known.add(run(environment, learner.policy, known.told(), drawn.take(rows), steps, warm_up,
                      recorder=learner.recorder))
    return known
