"""audit: do the data themselves obey the specification? A workload whose data contradict it is stopped before training.

Passes the features on, with audit.json (workload -> audits of its properties) beside them. A specification that is
wished for whatever the data say is marked `by_policy: true` in the task: then it is reported, and nothing is stopped.
"""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from components.progress import step
from components.workload_status import attempt
from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling
from models.audit.specification_audit import PropertyAudit, audit
from models.tasks.task import Task, read_task
from models.training.workload import raw_specification


def run_audit(task_yaml: str, features: Path, output: Path) -> dict[str, Any]:
    """Audits every workload that has features.

    Returns:
        workload -> [audit, ...] as in audit.json; see PropertyAudit.to_json, with "by_policy" and "sentence".
    """
    with step("audit"):
        task = read_task(task_yaml)
        shutil.copytree(features, output, dirs_exist_ok=True)
        status = json.loads((output / "status.json").read_text())
        found: dict[str, Any] = {}

        def work(name: str) -> None:
            if task.workload(name).refused:
                raise InputError(f"no direction is left to demand: {task.workload(name).refused}. Turn a direction "
                                 "round, or say `by_policy: true`")
            audits = _audits(output, task, name)
            by_policy = task.workload(name).by_policy
            found[name] = [{**one.to_json(), "by_policy": by_policy, "sentence": sentence(one)} for one in audits]
            contradicted = [sentence(one) for one in audits if one.verdict == "contradicted"]
            if contradicted and not by_policy:
                raise InputError(f"specification must be what the data obey, got {'; '.join(contradicted)}. Turn its "
                                 "direction round, leave the feature out, or mark the workload `by_policy: true`")

        for name in [name for name, message in status.items() if not message]:
            status[name] = attempt(partial(work, name))
        (output / "audit.json").write_text(json.dumps(found, indent=1, allow_nan=False))
        (output / "status.json").write_text(json.dumps(status, indent=1))
        return found


def _audits(features: Path, task: Task, name: str) -> tuple[PropertyAudit, ...]:
    if task.few_shot is None:
        return audit_workload(features / name, task, name)
    # torch, scikit-learn and Optuna, which no other task needs here
    from components.few_shot import audit_few_shot

    return audit_few_shot(features, name, task)


def audit_workload(folder: Path, task: Task, name: str) -> tuple[PropertyAudit, ...]:
    """Of all rows of a workload's features. Targets above 0 are compared by their logarithms: noise grows with them.

    Rows of one configuration were measured one after the other, and count as one group.
    """
    frame = pd.concat([pd.read_parquet(folder / f"{side}.parquet") for side in ("train", "test")], ignore_index=True)
    scaling = FeatureScaling.from_json((folder / "scaling.json").read_text())
    y = frame[task.target.name].to_numpy(dtype=np.float64)
    positive = bool((y > 0).all())
    own = [quantity.name for quantity in task.workload(name).configuration]
    group = np.asarray(frame.groupby(own).ngroup(), dtype=np.int64) if own else None
    found = audit(frame[list(scaling.features.names)].to_numpy(dtype=np.float64), np.log(y) if positive else y,
                  scaling.features.names, raw_specification(task, name, scaling).properties, group=group)
    return tuple(_in_units(one) for one in found) if positive else found


def _in_units(found: PropertyAudit) -> PropertyAudit:
    return replace(found, worst=tuple(
        replace(pair, low_target=float(np.exp(pair.low_target)), high_target=float(np.exp(pair.high_target)))
        for pair in found.worst))


def sentence(found: PropertyAudit) -> str:
    """What the data say of one direction, for people."""
    what = f"{found.feature} {found.direction}: {found.verdict}"
    if not found.pairs:
        return f"{what}, no two rows can be compared"
    text = (f"{what}, {found.obeys:.1%} of {found.pairs:,} {found.kind} pairs obey, {found.within_noise:.1%} do or lie "
            "within the noise")
    if found.verdict != "contradicted" or not found.worst:
        return text
    worst = found.worst[0]
    return (f"{text}; at worst {worst.low_value:.4g} gives {worst.low_target:.4g} and {worst.high_value:.4g} gives "
            f"{worst.high_target:.4g}")
