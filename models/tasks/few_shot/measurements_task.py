"""From a file of measurements and the `task` of its mapping to a whole task: which workloads, inputs, specification.

    task:
      name: sizing                       # default; names the gates (mlflow.yaml) and the registered models
      demand: {nodes: decreasing}        # directions that are wanted of every workload
      workloads: [w1, w2]                # adapted, the others are the pool; default: half of them, by the seed
      hidden: [64, 64]
      few_shot: {...}                    # models/tasks/few_shot/settings.py
      training: {...}                    # models/training/settings.py

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
from feature_store.yaml_fields import fields_of
from models.adaptation.encoding import Table, table_of
from models.adaptation.recommendation import SMALLEST_POOL
from models.audit.table_audit import TableAudit, audit_table, products_of
from models.tasks.few_shot.model_inputs import inputs_of
from models.tasks.few_shot.settings import parse_few_shot

DIRECTIONS = ("increasing", "decreasing")
KNOWN = {"name", "description", "demand", "workloads", "hidden", "few_shot", "training", "by_policy", "minimum_rows",
         "accuracy_tolerance", "tolerance"}
TRAINING = {"trunk_width": 64, "epochs": 100, "pretrain_epochs": 20}


def expand(template: Mapping[str, Any], measurements: Measurements, workloads: Sequence[str], seed: int,
           where: str) -> dict[str, Any]:
    """The content of a task file, see task.py.

    Args:
        template: as in the module docstring.
        workloads: to adapt; they overrule the template's. The pool is every other workload of the file.
        seed: of the half that is drawn where none are named.

    Raises:
        InputError: a field is unknown or of the wrong kind, a workload or column is not in the file, or the pool is
            empty.
    """
    data = fields_of(template, KNOWN, where)
    demand = _demand(data.get("demand"), where)
    given = data.get("few_shot") or {}
    settings = parse_few_shot(given, f"{where}: few_shot")
    if settings.pool:
        raise InputError(f"few_shot must not name a pool, got {len(settings.pool)} workloads ({where}); all workloads "
                         "of the file that are not adapted are the pool")
    training = data.get("training") or {}
    if not isinstance(training, Mapping):
        raise InputError(f"a mapping must stand here, got {training!r} ({where}: training)")
    table = table_of(measurements)
    chosen = _chosen(table, list(workloads) or data.get("workloads"), seed, where)
    pool = [name for name in table.workloads if name not in chosen]
    if len(pool) < SMALLEST_POOL:
        raise InputError(f"pool must have at least {SMALLEST_POOL} workloads, got {len(pool)} beside the "
                         f"{len(chosen)} to adapt ({where})")
    most = int((~np.isnan(table.pool.y[table.rows(pool)])).sum(axis=1).max())
    if most <= settings.runs:
        raise InputError(f"pool must have a workload with more than {settings.runs} measured configurations "
                         f"(few_shot.runs), got at most {most} ({where})")
    inputs = inputs_of(measurements.mapping, table.configurations)
    taken = {*IDENTITY, "configuration", f"log_{measurements.target}", *settings.inputs}
    for one in inputs:
        if one.name in taken:
            raise InputError(f"column of the configuration must have another name, got {one.name!r}, which the "
                             f"pipeline uses itself ({where})")
    for name in demand:
        if name not in {one.name for one in inputs}:
            raise InputError(f"demand must be of a number of the configuration that is no product, got {name!r} "
                             f"({where}); {nearest(name, [one.name for one in inputs if one.value is None])}")
    audits = audit_table(table, demand, products=products_of(measurements.mapping))
    by_policy = data.get("by_policy", False)
    target = measurements.mapping.target
    few_shot = {**given, "embedding": min(settings.embedding, len(pool))}
    return {
        "name": data.get("name", "sizing"),
        "kind": "few_shot",
        "description": data.get("description", f"{target.name} of a workload under a configuration, from a few runs."),
        "target": {"name": f"log_{target.name}", "unit": f"ln({target.unit or '1'})",
                   "description": f"natural logarithm of {target.name}"},
        "inputs": [{"name": one.name, "unit": one.unit} for one in inputs],
        "split_by": ["configuration"],
        "minimum_rows": data.get("minimum_rows", 2),
        "accuracy_tolerance": data.get("accuracy_tolerance", 0.05),
        "few_shot": {**few_shot, "pool": pool},
        "training": {**TRAINING, **training},
        "workloads": {name: _workload(name, demand, audits, data, by_policy) for name in chosen},
    }


def _demand(demand: Any, where: str) -> dict[str, Any]:
    if not isinstance(demand, Mapping) or not demand:
        raise InputError(f"task must demand a direction of a column (demand: {{nodes: decreasing}}), got {demand!r} "
                         f"({where})")
    for name, direction in demand.items():
        if not isinstance(name, str):
            raise InputError(f"column must be a name, got {name!r} ({where}: demand)")
        if direction not in DIRECTIONS:
            raise InputError(f"direction must be increasing or decreasing, got {direction!r} ({where}: demand.{name})")
    return dict(demand)


def _chosen(table: Table, asked: Any, seed: int, where: str) -> list[str]:
    if asked is None:
        half = np.random.default_rng(seed).permutation(len(table.workloads))[: len(table.workloads) // 2]
        # one whose name no model can have stays in the pool
        return [table.workloads[i] for i in sorted(half) if is_workload_name(table.workloads[i])]
    if not isinstance(asked, list) or not asked:
        raise InputError(f"workloads must be a list of names, got {asked!r} ({where})")
    table.rows([str(name) for name in asked])
    for name in asked:
        check_workload_name(str(name), f"{where}: workloads")
    return list(dict.fromkeys(str(name) for name in asked))


def _workload(name: str, demand: Mapping[str, Any], audits: Mapping[str, TableAudit], data: Mapping[str, Any],
              by_policy: bool) -> dict[str, Any]:
    kept, notes = dict(demand), []
    for column in demand if not by_policy else ():
        own, overall = audits[column].workloads[name], audits[column].overall
        for what, found in (("its own runs", own), ("all workloads", overall)):
            if found.verdict == "contradicted" and column in kept:
                del kept[column]
                notes.append(f"{column} {demand[column]} is not demanded: {what} contradict it "
                             f"({found.within_noise:.0%} of {found.pairs:,} pairs obey within noise)")
    refused = "" if kept else "; ".join(notes)
    kept = kept or dict(demand)
    properties = [{"monotone": {"features": [column], "direction": direction}} for column, direction in kept.items()]
    specification: dict[str, Any] = {"properties": properties}
    if "tolerance" in data:
        specification["tolerance"] = data["tolerance"]
    return {"hidden": data.get("hidden", [64, 64]), "specification": specification, "by_policy": by_policy,
            "note": "; ".join(notes), "refused": refused}
