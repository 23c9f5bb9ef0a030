"""Who comes and goes, and who is alone, in the benchmark of agents on one cluster; what of it is measured again."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.tasks.control.judging import play
from models.tasks.task import load_task
from systems.shared_cluster.benchmarks import many_agents
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


def test_another_task_file_is_another_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, made = load_task("shared_cluster"), list[str]()
    other = task.model_copy(update={"training": task.training.model_copy(update={"rounds": task.training.rounds + 1})})
    figures = {"cost": 1.0, "settings": {}}

    def make(name: str, *_: object) -> dict[str, object]:
        made.append(name)
        return figures

    for way in ("_trained", "_tuned"):
        monkeypatch.setattr(many_agents, way, make)
    monkeypatch.setattr(many_agents, "_figures", lambda *_: figures)
    monkeypatch.setattr(many_agents, "_drops", lambda *_: {"drops": {}})
    options, counts = Namespace(output=tmp_path / "results.json", seeds=1), []
    for read in (task, task, other):
        monkeypatch.setattr(many_agents, "load_task", lambda _, read=read: read)
        many_agents.run(options)
        counts.append(len(made))
    assert counts[0] == counts[1] > 0 and counts[2] == 2 * counts[0]
