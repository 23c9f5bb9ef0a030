"""Who comes and goes, and who is alone, in the benchmark of agents on one cluster."""

import pytest
import torch
from torch import Tensor

from models.tasks.control.judging import play
from systems.shared_cluster.benchmarks.many_agents import ROWS, SEED, STEPS, WARM_UP, Alone, churned
from systems.shared_cluster.simulator import SharedCluster

ALLOTMENT = [signal.name for signal in SharedCluster.signals].index("allotment_cores")


def act(seen: Tensor, seconds: float) -> Tensor:
    """Half of what may be taken, and more with time."""
    return seen[:, [ALLOTMENT]] * (0.5 + 0.001 * seconds)


def test_where_nobody_comes_the_episode_goes_on_as_it_was() -> None:
    with torch.no_grad():
        before, after = churned(12, 12, act)
        cluster = SharedCluster(12)
        episodes = cluster.draw("held_out", ROWS // 12, STEPS + 1, SEED)
        reward, half = play(cluster, episodes, STEPS - WARM_UP, act).series["reward"].mean(axis=1), STEPS // 2
        assert (before, after) == pytest.approx((reward[WARM_UP:half].mean(), reward[half:].mean()), rel=1e-6)
        assert churned(12, 14, act)[1] != after


def test_who_is_alone_has_the_load_and_the_cluster_of_twelve() -> None:
    chosen = [13, 1, 25]
    alone = Alone(1).draw("held_out", 3, 9, 1, "", chosen)
    together = SharedCluster(12).draw("held_out", 3, 9, 1, "", [0, 1, 2])
    torch.testing.assert_close(alone.rate_rps, together.rate_rps[:, [13, 1, 25]])
    torch.testing.assert_close(alone.capacity, together.capacity[[1, 0, 2]])
