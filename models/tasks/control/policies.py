"""The policy of a control task: its shape, and the same weights under other limits."""

from dataclasses import replace

from models.environments.environment import Environment
from models.environments.environments import environment_of
from models.learners.policy import Gates, Policy, PolicyShape
from models.tasks.control.task import ControlTask


def policy_shape(task: ControlTask, environment: Environment) -> PolicyShape:
    """Of the task's sizes; limits are those of the environment's controls, so that a workload has its own."""
    written, system = task.by_construction, environment_of(task.environment)
    gates = system.gates if written is None else Gates(written.metric, written.objective, written.near, written.idle)
    return PolicyShape(tuple(environment.signals), tuple(environment.controls), tuple(environment.features),
                       task.hidden, gates, system.anchors)


def with_limits(policy: Policy, environment: Environment) -> Policy:
    """The same weights under the limits of an environment's controls."""
    other = Policy(replace(policy.shape, controls=tuple(environment.controls)))
    other.load_state_dict(policy.state_dict())
    return other
