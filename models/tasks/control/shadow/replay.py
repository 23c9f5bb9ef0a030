"""The recorded load of a shadow once more, in the twin: under what was set, under the policy, under its fallback.

Without the shield. A control in which nothing else would ever have been set than what was (the operator holds it)
follows what was set under all three.

Symbols: T steps, N variations of what is not known of the service, m controls.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.control.contract.environment import Environment
from models.control.contract.own_service import OwnServiceSystem
from models.control.contract.systems import environment_of
from models.control.simulation.rollout import Acting, acting_of
from models.tasks.control.judging import Played, model_acting, play
from models.tasks.control.shadow.shadow_log import ShadowLog
from models.tasks.control.task import ControlTask
from models.tasks.shadowed_kind import ShadowedPolicy

AS_SET, POLICY, FALLBACK = "what was set", "the policy", "the fallback"
SAME_STEP = 0.2  # share by which steps of log and twin may differ
SAME_TARGET = 1e-6  # the same of a target that keeps what is set


@dataclass(frozen=True)
class Replayed:
    """Attributes:
    rows: (T,) of the log.
    warm_up: the first of them, which do not count.
    held: controls that follow what was set.
    played: AS_SET, POLICY, FALLBACK -> what came of it.
    """

    rows: NDArray[np.int64]
    warm_up: int
    held: tuple[str, ...]
    played: Mapping[str, Played]


def replay(task: ControlTask, workload: str, log: ShadowLog, policy: ShadowedPolicy) -> Replayed | str:
    """What came of each, or why nothing can be replayed.

    Raises:
        InputError: the system has no such fallback.
    """
    system, written = environment_of(task.environment), task.workload(workload)
    if not isinstance(system, OwnServiceSystem):
        return "the system has no replay of a recorded load"
    if abs(log.step_s - system.step_seconds) > SAME_STEP * system.step_seconds:
        return f"the shadow's steps are {log.step_s:.3g} s apart, the twin's {system.step_seconds:g} s"
    if policy.rule not in system.rules:
        raise InputError(f"fallback must be one of {', '.join(system.rules)}, got {policy.rule!r}")
    names = [control.name for control in system.controls]
    if missing := [name for name in system.columns if name not in log.signals]:
        return f"the log does not have the load ({', '.join(missing)})"
    if missing := [name for name in names if name not in log.controls]:
        return f"the log does not have the controls {', '.join(missing)}: it is of another version of the system"
    shown = [one.name for one in system.settings if one.name in log.signals]
    telemetry = log.stretch(tuple(system.columns), shown)
    if len(telemetry) < task.minimum_rows:
        return (f"the longest stretch without a gap has {len(telemetry)} steps, and {task.minimum_rows} are needed "
                "(`minimum_rows` of the task)")
    limits = {name: (low, high) for name, (low, high) in written.limits.items()}
    rows = telemetry.index.to_numpy(dtype=np.int64)
    columns = [list(log.controls).index(name) for name in names]
    recorded = torch.tensor(log.targets[rows][:, columns], dtype=torch.float32)
    decided = rows[np.isfinite(log.would[rows]).all(axis=1)]
    held = [at for at, column in enumerate(columns) if len(decided) and np.allclose(
        log.would[decided, column], log.targets[decided, column], rtol=SAME_TARGET, atol=0.0)]
    warm_up = task.judging.counted_from(len(rows))

    # what the controller was told, which its operator may have changed
    told = {name: log.last(name) for name in shown if np.isfinite(log.last(name))}

    def played(acting_in: Callable[[Environment], Acting], bounded: bool, follows: list[int]) -> Played:
        environment, episodes = system.replay(telemetry.reset_index(drop=True), {**written.settings, **told},
                                              limits, bounded=bounded)
        act = acting_in(environment)

        def acting(observation: torch.Tensor, seconds: float) -> torch.Tensor:
            targets = act(observation, seconds).clone()
            targets[:, follows] = recorded[round(seconds / environment.step_seconds)][follows]
            return targets

        return play(environment, episodes, len(rows), acting, warm_up)

    def nothing(environment: Environment) -> Acting:
        return lambda observation, seconds: torch.zeros(len(observation), len(names))

    rule = system.rules[policy.rule]
    made: dict[str, Any] = {
        AS_SET: (nothing, False, list(range(len(names)))),
        POLICY: (lambda environment: model_acting(policy.model), True, held),
        FALLBACK: (lambda environment: acting_of(environment, rule.make(policy.settings)), True, held)}
    try:
        found = {who: played(*how) for who, how in made.items()}
    except InputError as error:
        return str(error)
    return Replayed(rows, warm_up, tuple(names[at] for at in held), found)
