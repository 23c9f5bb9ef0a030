"""Trajectories of an environment as the log of a controller, for tests of what reads one."""

from models.control.training.trajectories import Trajectories
from models.control.training.trajectory_log import Actor, Step


def to_steps(trajectories: Trajectories, actor: Actor) -> list[Step]:
    """As a controller would have logged them: all applications, named by their row, at a step, then the next step."""
    numbers = {name: value.tolist() for name, value in vars(trajectories).items()}
    found = []
    for step in range(trajectories.reward.shape[1]):
        for row in range(len(trajectories)):
            at = {name: values[row][step] for name, values in numbers.items()}
            found.append(Step(str(row), 0, step, actor, tuple(at.pop("observation")), tuple(at.pop("targets")), **at))
    return found
