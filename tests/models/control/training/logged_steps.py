"""Trajectories of an environment as the log of a controller, for tests of what reads one."""

from models.control.training.trajectories import OUTCOMES, Trajectories
from models.control.training.trajectory_log import Actor, Step


def to_steps(trajectories: Trajectories, actor: Actor) -> list[Step]:
    """As a controller would have logged them: all applications at a step, then the next step."""
    found = []
    numbers = {name: getattr(trajectories, name).tolist() for name in ("observation", "targets", *OUTCOMES)}
    taken = trajectories.taken.tolist()
    for step in range(trajectories.taken.shape[1]):
        for row, (name, episode) in enumerate(zip(trajectories.application, trajectories.episode, strict=True)):
            if taken[row][step]:
                at = {key: values[row][step] for key, values in numbers.items()}
                found.append(Step(name, episode, step, actor, tuple(at["observation"]), tuple(at["targets"]),
                                  at["reward"], at["cost"], at["violation"], at["violated"]))
    return found
