"""audit: do the data themselves obey the specification? A workload whose data contradict it is stopped before training.

Passes the features of all shards on as one folder, with audit.json (workload -> audits of its properties) beside them.
A specification that is imposed even where the data contradict it is marked `by_policy: true` in the task: that is
reported, and stops nothing.
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from components.joined_features import join_features
from components.kind import task_and_kind
from components.progress import step
from feature_store.errors import InputError
from models.tasks.attempts import attempt


def run_audit(task_yaml: str, workloads: Sequence[str], features: Sequence[Path], output: Path) -> dict[str, Any]:
    """Audits every workload that has features.

    Args:
        workloads: all of the run.
        features: a folder a shard, as `featurize` wrote it.

    Returns:
        workload -> [audit, ...] as in audit.json; see PropertyAudit.to_json, with "by_policy" and "sentence".

    Raises:
        InputError, RefusedError: no workload is left (joined_features.py).
    """
    with step("audit") as progress:
        task, kind = task_and_kind(task_yaml)
        join_features(features, workloads, output)
        status = json.loads((output / "status.json").read_text())
        audits: dict[str, Any] = {}
        notes: set[str] = set()

        def work(name: str) -> None:
            made = kind.audit(task, name, output)
            if isinstance(made, str):
                notes.add(made)
                return
            by_policy = kind.by_policy(task, name)
            audits[name] = [{**one.to_json(), "by_policy": by_policy, "sentence": one.sentence} for one in made]
            contradicted = [one.sentence for one in made if one.verdict == "contradicted"]
            if contradicted and not by_policy:
                raise InputError(f"specification: expected one that the data obey, got {'; '.join(contradicted)}. "
                                 "Reverse its direction, leave the feature out, or mark the workload `by_policy: true`")

        for name in [name for name, message in status.items() if not message]:
            status[name] = attempt(partial(work, name))
        progress.note("; ".join(sorted(notes)))
        (output / "audit.json").write_text(json.dumps(audits, indent=1, allow_nan=False))
        (output / "status.json").write_text(json.dumps(status, indent=1))
        return audits
