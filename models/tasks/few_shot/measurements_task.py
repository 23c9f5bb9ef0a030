"""From a file of measurements and the `task` of its mapping to a whole task: which workloads, inputs, specification.

    task:
      demand: {nodes: decreasing}        # directions that are wanted of every workload
      workloads: [w1, w2]                # adapted, the others are the pool; default: half of them, by the seed
      few_shot: {runs: 3}                # and more, see measurements_task_file.py

What a workload's specification demands is chosen by the audit (models/audit/table_audit.py): a direction that the
workload's own runs contradict is left out of it, one that all workloads together contradict is left out everywhere;
`by_policy: true` keeps all. The reason stands in the workload's note, which its report shows. A workload that is left
with no direction is refused: the audit of the run stops it with the reasons.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feature_store.errors import InputError, nearest
from feature_store.measurements import Measurements
from feature_store.names import check_workload_name, is_workload_name
from feature_store.schema import IDENTITY
from feature_store.strict_yaml import Lines
from feature_store.written.field_errors import field_error
from feature_store.written.model import check_written
from models.adaptation.encoding import Table, table_of
from models.adaptation.recommendation import SMALLEST_POOL
from models.audit.table_audit import TableAudit, audit_table, products_of
from models.tasks.few_shot.measurements_task_file import TRAINING, MeasurementsTask
from models.tasks.few_shot.model_inputs import inputs_of


def expand(template: Any, measurements: Measurements, workloads: Sequence[str], seed: int, where: str,
           lines: Lines | None = None) -> dict[str, Any]:
    """The content of a task file, see task.py.

    Args:
        template: as in the module docstring.
        workloads: to adapt; they overrule the template's. The pool is every other workload of the file.
        seed: of the half that is drawn where none are named.
        where: names the template in errors.
        lines: of the template, where it was read from a file.

    Raises:
        InputError: a field is unknown or of the wrong kind, a workload or column is not in the file, or the pool is
            empty.
    """
    wanted = check_written(MeasurementsTask, template, "task", where, lines)
    table = table_of(measurements)
    chosen = _chosen(table, list(workloads) or wanted.workloads, seed, where)
    pool = [name for name in table.workloads if name not in chosen]
    if len(pool) < SMALLEST_POOL:
        raise InputError(f"pool must have at least {SMALLEST_POOL} workloads, got {len(pool)} beside the "
                         f"{len(chosen)} to adapt ({where})")
    most = int((~np.isnan(table.pool.y[table.rows(pool)])).sum(axis=1).max())
    if most <= wanted.few_shot.runs:
        message = f"expected fewer runs than a workload of the pool has measured configurations, {most} at most, got "
        raise field_error(["few_shot", "runs"], f"{message}{wanted.few_shot.runs}", where, lines)
    inputs = inputs_of(measurements.mapping, table.configurations)
    taken = {*IDENTITY, "configuration", f"log_{measurements.target}", *wanted.few_shot.inputs}
    for one in inputs:
        if one.name in taken:
            raise InputError(f"column of the configuration must have another name, got {one.name!r}, which the "
                             f"pipeline uses itself ({where})")
    for name in wanted.demand:
        if name not in {one.name for one in inputs}:
            hint = nearest(name, [one.name for one in inputs if one.value is None])
            raise field_error(["demand", name], "expected a number of the configuration that is no product, got "
                                                f"{name!r}; {hint}", where, lines)
    audits = audit_table(table, wanted.demand, products=products_of(measurements.mapping))
    target = measurements.mapping.target
    few_shot = wanted.few_shot.model_dump(mode="json", exclude_unset=True)
    description = wanted.description or f"{target.name} of a workload under a configuration, from a few runs."
    return {
        "name": wanted.name,
        "kind": "few_shot",
        "description": description,
        "target": {"name": f"log_{target.name}", "unit": f"ln({target.unit or '1'})",
                   "description": f"natural logarithm of {target.name}"},
        "inputs": [{"name": one.name, "unit": one.unit} for one in inputs],
        "split_by": ["configuration"],
        "minimum_rows": wanted.minimum_rows,
        "accuracy_tolerance": wanted.accuracy_tolerance,
        "few_shot": {**few_shot, "embedding": min(wanted.few_shot.embedding, len(pool)), "pool": pool},
        "training": {**TRAINING, **wanted.training.model_dump(mode="json", exclude_unset=True)},
        "workloads": {name: _workload(name, wanted, audits) for name in chosen},
    }


def _chosen(table: Table, asked: Sequence[str] | None, seed: int, where: str) -> list[str]:
    if asked is None:
        half = np.random.default_rng(seed).permutation(len(table.workloads))[: len(table.workloads) // 2]
        # one whose name no model can have stays in the pool
        return [table.workloads[i] for i in sorted(half) if is_workload_name(table.workloads[i])]
    table.rows(list(asked))
    return list(dict.fromkeys(check_workload_name(name, f"{where}: workloads") for name in asked))


def _workload(name: str, wanted: MeasurementsTask, audits: Mapping[str, TableAudit]) -> dict[str, Any]:
    kept, notes = dict(wanted.demand), []
    for column in wanted.demand if not wanted.by_policy else ():
        own, overall = audits[column].workloads[name], audits[column].overall
        for what, found in (("its own runs", own), ("all workloads", overall)):
            if found.verdict == "contradicted" and column in kept:
                del kept[column]
                notes.append(f"{column} {wanted.demand[column]} is not demanded: {what} contradict it "
                             f"({found.within_noise:.0%} of {found.pairs:,} pairs obey within noise)")
    refused = "" if kept else "; ".join(notes)
    kept = kept or dict(wanted.demand)
    properties = [{"monotone": {"features": [column], "direction": direction}} for column, direction in kept.items()]
    specification: dict[str, Any] = {"properties": properties}
    if wanted.tolerance is not None:
        specification["tolerance"] = wanted.tolerance
    return {"hidden": list(wanted.hidden), "specification": specification, "by_policy": wanted.by_policy,
            "note": "; ".join(notes), "refused": refused}
