"""The report of a shadow: its log, the replay of its load, the numbers and the page."""

from pathlib import Path
from typing import Any

from models.tasks.control.shadow.findings import findings
from models.tasks.control.shadow.page import page
from models.tasks.control.shadow.replay import replay
from models.tasks.control.shadow.shadow_log import read_shadow
from models.tasks.control.shadow.verdict import doubts, next_steps, verdict
from models.tasks.control.task import ControlTask
from models.tasks.shadowed_kind import ShadowedPolicy


def shadow_report(task: ControlTask, workload: str, folder: Path, policy: ShadowedPolicy,
                  task_path: str) -> tuple[dict[str, Any], str]:
    """See `ShadowedKind`."""
    log = read_shadow(folder, task.name, workload)
    replayed = replay(task, workload, log, policy)
    found = findings(task, workload, log, policy, replayed)
    said = {"verdict": verdict(found), "doubts": doubts(found), "next": next_steps(found, task_path)}
    return {**said, **found}, page(found, task, log, replayed, task_path)
