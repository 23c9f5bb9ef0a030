"""validate: the data gate. Workloads whose telemetry breaks a rule are stopped here, each with its message.

Before that, the few bad rows go that the mapping lets be dropped: what is passed on, and its version, is without them.
Where no workload is left, so is the run: there is nothing to train.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from components.kind import task_and_kind
from components.progress import step
from feature_store.dropping import drop_bad_rows
from feature_store.errors import InputError, RefusedError, nearest
from feature_store.expectations import DataGate
from feature_store.origin import Origin
from feature_store.samples import ROWS, SOURCE, Samples, write_samples

SAID = 3  # reasons in the message of a run that is stopped


def run_validate(task_yaml: str, workloads: list[str], samples: Path, output: Path, docs: Path) -> dict[str, Any]:
    """Judges every workload's rows; writes validation.json and the Data Docs, and passes on the samples that are left.

    Returns:
        workload -> {"passed", "failures", "warnings", "checks", "statistics", "bad_rows"}.

    Raises:
        InputError: the telemetry has rows of none of the workloads.
        RefusedError: no workload passed; with the first reasons. The Data Docs are written all the same.
    """
    with step("validate") as progress:
        task, kind = task_and_kind(task_yaml)
        read = Samples(samples)
        _require_rows(workloads, list(read))
        origin = Origin.read(samples)
        gate = DataGate(origin)
        verdicts: dict[str, Any] = {}

        def judged() -> Iterator[pd.DataFrame]:
            for number, name in enumerate(workloads, 1):
                progress({"done": number / len(workloads), "said": f"workload {number:,} of {len(workloads):,}"})
                schema = kind.schema(task, name)
                kept, found = drop_bad_rows(read.to_judge(name), schema, origin)
                progress.note(f"{name}: {found.sentence()}" if found is not None and found.sentence() else "")
                verdicts[name] = gate.judge(kept, schema, found, list(read)).to_dict()
                yield kept[kept["workload"] == name]

        shutil.copytree(samples, output, dirs_exist_ok=True, ignore=shutil.ignore_patterns(ROWS, SOURCE))
        write_samples(judged(), read.source["telemetry"], output, origin.bad_rows)
        gate.write_docs(docs)
        (output / "validation.json").write_text(json.dumps(verdicts, indent=1, default=str))
        if not any(verdict["passed"] for verdict in verdicts.values()):
            raise RefusedError(_all_failed(verdicts, docs))
        return verdicts


def _require_rows(workloads: list[str], there: list[str]) -> None:
    """A name that is misspelt must not look like bad data."""
    if not set(workloads) & set(there):
        raise InputError(f"workload must be in the telemetry, got {workloads[0]!r} without any row; "
                         f"{nearest(workloads[0], there)}")


def _all_failed(verdicts: dict[str, Any], docs: Path) -> str:
    reasons = [verdict["failures"][0]["message"] for verdict in verdicts.values()]
    more = f"; and of {len(reasons) - SAID:,} more workloads" if len(reasons) > SAID else ""
    return (f"telemetry must pass the data gate for one workload at least, got none of {len(reasons):,}: "
            f"{'; '.join(reasons[:SAID])}{more}; every rule: {docs / 'index.html'}")
