"""audit of kinds that learn from telemetry: do a workload's rows obey the directions that are demanded?"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling
from models.audit.specification_audit import PropertyAudit, audit
from models.tasks.supervised.specifications import raw_specification
from models.tasks.supervised.task import SupervisedTask


def require_direction(task: SupervisedTask, workload: str) -> None:
    """Raises InputError for a workload that is refused: no direction is left to demand of it."""
    if task.workload(workload).refused:
        raise InputError(f"no direction is left to demand: {task.workload(workload).refused}. Turn a direction "
                         "round, or say `by_policy: true`")


def audit_rows(task: SupervisedTask, workload: str, folder: Path) -> tuple[PropertyAudit, ...]:
    """Of all rows of a workload's features. Targets above 0 are compared by their logarithms: noise grows with them.

    Rows of one configuration were measured one after the other, and count as one group.
    """
    frame = pd.concat([pd.read_parquet(folder / f"{side}.parquet") for side in ("train", "test")], ignore_index=True)
    scaling = FeatureScaling.from_json((folder / "scaling.json").read_text())
    y = frame[task.target.name].to_numpy(dtype=np.float64)
    positive = bool((y > 0).all())
    columns = [quantity.name for quantity in task.workload(workload).configuration]
    group = np.asarray(frame.groupby(columns).ngroup(), dtype=np.int64) if columns else None
    audits = audit(frame[list(scaling.features.names)].to_numpy(dtype=np.float64), np.log(y) if positive else y,
                   scaling.features.names, raw_specification(task, workload, scaling).properties, group=group)
    return tuple(_in_units(one) for one in audits) if positive else audits


def _in_units(audited: PropertyAudit) -> PropertyAudit:
    return replace(audited, worst=tuple(
        replace(pair, low_target=float(np.exp(pair.low_target)), high_target=float(np.exp(pair.high_target)))
        for pair in audited.worst))
