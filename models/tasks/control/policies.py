"""The policy of a control task: its shape, and the same weights under other limits."""

from dataclasses import replace

from models.control.contract.environment import Environment
from models.control.policy.policy import Gates, Policy, PolicyShape
from models.control.training.monotone import Demands, Monotone, NoDemands
from models.tasks.control.task import ControlTask


def policy_shape(task: ControlTask, environment: Environment) -> PolicyShape:
    """Of the task's sizes; limits are those of the environment's controls, so that a workload has its own."""
    written = task.by_construction
    gates = Gates() if written is None else Gates(**written.model_dump(exclude={"monotone"}))
    return PolicyShape(tuple(environment.signals), tuple(environment.controls), tuple(environment.features),
                       task.hidden, gates, environment.anchors)


def demands_of(task: ControlTask) -> Demands:
    """What training has to keep beside the form of the network."""
    written = task.by_construction
    if written is None or not written.monotone:
        return NoDemands()
    return Monotone({name: 1 if direction == "increasing" else -1 for name, direction in written.monotone.items()})


def with_limits(policy: Policy, environment: Environment) -> Policy:
    """The same weights under the limits of an environment's controls."""
    other = Policy(replace(policy.shape, controls=tuple(environment.controls)))
    other.load_state_dict(policy.state_dict())
    return other
