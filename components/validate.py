"""validate: the data gate. Workloads whose telemetry breaks a rule are stopped here, each with its message.

Before that, the few bad rows go that the mapping lets be dropped: what is passed on, and its version, is without them.
Whether any workload is left, `audit` asks, which sees those of all shards.
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
from feature_store.expectations import DataGate
from feature_store.origin import Origin
from feature_store.samples import ROWS, SOURCE, Samples, write_samples


def run_validate(task_yaml: str, workloads: list[str], samples: Path, output: Path, docs: Path) -> dict[str, Any]:
    """Judges every workload's rows; writes validation.json and the Data Docs, and passes on the samples that are left.

    Returns:
        workload -> {"passed", "failures", "warnings", "checks", "statistics", "bad_rows", "docs"}.
    """
    with step("validate", workloads) as progress:
        task, kind = task_and_kind(task_yaml)
        read = Samples(samples)
        there = sorted({*read, *read.source["others"]})
        origin = Origin.read(samples)
        gate = DataGate(origin)
        verdicts: dict[str, Any] = {}

        def judged() -> Iterator[pd.DataFrame]:
            for number, name in enumerate(workloads, 1):
                progress({"done": number / len(workloads), "said": f"workload {number:,} of {len(workloads):,}"})
                schema = kind.schema(task, name)
                kept, found = drop_bad_rows(read.to_judge(name), schema, origin)
                progress.note(f"{name}: {found.sentence()}" if found is not None and found.sentence() else "")
                verdicts[name] = gate.judge(kept, schema, found, there).to_dict()
                verdicts[name]["docs"] = str(docs / "index.html")
                yield kept[kept["workload"] == name]

        shutil.copytree(samples, output, dirs_exist_ok=True, ignore=shutil.ignore_patterns(ROWS, SOURCE))
        write_samples(judged(), read.source["telemetry"], output, origin.bad_rows, others=there)
        gate.write_docs(docs)
        (output / "validation.json").write_text(json.dumps(verdicts, indent=1, default=str))
        return verdicts
