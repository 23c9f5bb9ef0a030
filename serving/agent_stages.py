"""Stages of a learned controller as moves of the promotion ledger.

The lifecycle (models/control/training/lifecycle.py) decides from rewards; here each of its transitions becomes a
`Move` that the ledger signs, chains and holds to the edges of Algorithm 5.1 (serving/moves.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.control.training.lifecycle import Transition
from serving.ledger import Ledger
from serving.ledger_entry import Entry
from serving.moves import Action, Move, Standing

_ACTIONS: dict[str, Action] = {"initialized": "stage_initialized", "offline": "stage_offline",
                               "online": "stage_online", "serving": "stage_serving"}


@dataclass(frozen=True)
class Agent:
    """Whose stages: the version of a policy that acts on a workload.

    Attributes:
        task, workload: of the ledger.
        model, version: in the registry.
        bundle_sha256: digest that names the version's bundle, as it was registered.
    """

    task: str
    workload: str
    model: str
    version: int
    bundle_sha256: str


def stage_move(transition: Transition, agent: Agent, standing: Standing, at: str, actor: str) -> Move:
    """A transition as a move.

    Args:
        standing: of the agent's task and workload, now.
        at: UTC time, ISO 8601.
        actor: who or what follows the lifecycle.
    """
    reason = f"{transition.before} -> {transition.after} after episode {transition.episode}: {transition.reason}"
    return Move(_ACTIONS[transition.after], at, agent.task, agent.workload, agent.model, agent.version,
                standing.champion, agent.bundle_sha256, gates_passed=True, reason=reason, actor=actor)


def record_stages(ledger: Ledger, transitions: Sequence[Transition], agent: Agent, at: str, actor: str
                  ) -> tuple[Entry, ...]:
    """Appends transitions to the ledger, in order.

    Raises:
        RefusedError: the version is not registered, the bundle is another, or a stage does not follow the one before.
    """
    with ledger.locked():
        standing = ledger.standing(agent.task, agent.workload)
        return ledger.append([stage_move(transition, agent, standing, at, actor) for transition in transitions])
