"""audit of control tasks: do the fallback rule's own actions obey what is demanded of the policy?

The rule is run in the workload's environment with its default settings; each order of the specification is asked of
pairs of what it saw and set. A rule that contradicts an order has been getting on without it: the demand may cost
reward. That is said, and stops the workload where the task is not `by_policy`.
"""

from pathlib import Path

import numpy as np

from models.audit.specification_audit import PropertyAudit, audit
from models.control.contract.environment import agents_of
from models.control.contract.systems import environment_of
from models.control.simulation.rollout import acting_of
from models.tasks.control.judging import play
from models.tasks.control.task import ControlTask
from models.tasks.control.workload import specification_of, twin_of

EPISODES, STEPS, SEED = 32, 60, 0


def audit_actions(task: ControlTask, workload: str, features: Path) -> tuple[PropertyAudit, ...]:
    """One audit for each input of each order, of the logarithms of the targets."""
    environment = twin_of(task, workload, features)
    specification = specification_of(task, workload, environment)
    rule = environment_of(task.environment).rules[task.fallback_of(workload)].make({})
    episodes = environment.draw("train", EPISODES, STEPS, SEED)
    played = play(environment, episodes, STEPS, acting_of(environment, rule))
    seen = played.observations.reshape(-1, len(environment.signals)).astype(np.float64)
    group = np.tile(np.arange(EPISODES).repeat(agents_of(environment)), STEPS)
    found: list[PropertyAudit] = []
    for output, control in enumerate(environment.controls):
        targets = np.log(np.maximum(played.targets[:, :, output].ravel().astype(np.float64), control.low))
        found += audit(seen, targets, specification.feature_names, specification.properties, output=output, group=group)
    return tuple(found)
