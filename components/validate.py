"""validate: the data gate. Workloads whose telemetry breaks a rule are stopped here, each with its message.

Before that, the few bad rows go that the mapping lets be dropped: what is passed on, and its version, is without them.
Where no workload is left, so is the run: there is nothing to train.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from components.ingest import SOURCE, write_samples
from components.kind import task_and_kind
from components.progress import step
from feature_store.dropping import drop_bad_rows
from feature_store.errors import InputError, RefusedError, nearest
from feature_store.expectations import validate_all
from feature_store.origin import Origin

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
        frame = pd.read_parquet(samples / "samples.parquet")
        _require_rows(workloads, frame)
        schemas = {name: kind.schema(task, name) for name in workloads}
        origin = Origin.read(samples)
        kept, bad_rows = drop_bad_rows(frame, schemas, origin)
        for name, found in bad_rows.items():
            progress.note(f"{name}: {found.sentence()}" if found.sentence() else "")
        results = validate_all(dict.fromkeys(workloads, kept), schemas, docs, origin, bad_rows)
        verdicts = {name: result.to_dict() for name, result in results.items()}
        shutil.copytree(samples, output, dirs_exist_ok=True)
        if origin.bad_rows is not None:
            read = json.loads((samples / SOURCE).read_text())["telemetry"]
            write_samples(kept, read, output, origin.bad_rows)
        (output / "validation.json").write_text(json.dumps(verdicts, indent=1, default=str))
        if not any(verdict["passed"] for verdict in verdicts.values()):
            raise RefusedError(_all_failed(verdicts, docs))
        return verdicts


def _require_rows(workloads: list[str], frame: pd.DataFrame) -> None:
    """A name that is misspelt must not look like bad data."""
    there = sorted(frame["workload"].dropna().astype(str).unique())
    if not set(workloads) & set(there):
        raise InputError(f"workload must be in the telemetry, got {workloads[0]!r} without any row; "
                         f"{nearest(workloads[0], there)}")


def _all_failed(verdicts: dict[str, Any], docs: Path) -> str:
    reasons = [verdict["failures"][0]["message"] for verdict in verdicts.values()]
    more = f"; and of {len(reasons) - SAID:,} more workloads" if len(reasons) > SAID else ""
    return (f"telemetry must pass the data gate for one workload at least, got none of {len(reasons):,}: "
            f"{'; '.join(reasons[:SAID])}{more}; every rule: {docs / 'index.html'}")
