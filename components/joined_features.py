"""Features of all workloads in one folder, out of those of the shards that read telemetry apart.

Flow: `audit` calls it; the steps behind it ask one folder. Where no workload is left, so is the run: there is nothing
to train.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, RefusedError, nearest
from feature_store.samples import SOURCE, joined_source

SAID = 3  # reasons in the message of a run that is stopped
STATUS, VALIDATION, CORRELATION = "status.json", "validation.json", "correlation.json"


def join_features(parts: Sequence[Path], workloads: Sequence[str], output: Path) -> None:
    """Writes what `featurize` wrote of each shard's workloads to one folder.

    Raises:
        InputError: the telemetry has rows of none of the workloads.
        RefusedError: none passed the data gate; with the first reasons.
    """
    for part in parts:
        shutil.copytree(part, output, dirs_exist_ok=True)
    for name in (STATUS, VALIDATION):
        found: dict[str, Any] = {workload: one for part in parts for workload, one in _read(part, name).items()}
        _write(output, name, {workload: found[workload] for workload in workloads})
    source = joined_source([_read(part, SOURCE) for part in parts])
    _write(output, SOURCE, source)
    _write(output, CORRELATION, {"pooled": dict(sorted(
        row for part in parts for row in _read(part, CORRELATION)["pooled"].items()))})
    _require_rows(workloads, [*source["workloads"], *source["others"]])
    _require_usable(_read(output, VALIDATION))


def _read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text())
    return content


def _write(folder: Path, name: str, content: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(content, indent=1))


def _require_rows(workloads: Sequence[str], there: Sequence[str]) -> None:
    """A name that is misspelt must not look like bad data."""
    if not set(workloads) & set(there):
        raise InputError(f"workload must be in the telemetry, got {workloads[0]!r} without any row; "
                         f"{nearest(workloads[0], there)}")


def _require_usable(verdicts: dict[str, Any]) -> None:
    if any(verdict["passed"] for verdict in verdicts.values()):
        return
    reasons = [verdict["failures"][0]["message"] for verdict in verdicts.values()]
    docs = list(dict.fromkeys(verdict["docs"] for verdict in verdicts.values()))
    beside = f" (one page a shard, {len(docs):,} in all)" if len(docs) > 1 else ""
    more = f"; and of {len(reasons) - SAID:,} more workloads" if len(reasons) > SAID else ""
    raise RefusedError(f"telemetry must pass the data gate for one workload at least, got none of {len(reasons):,}: "
                       f"{'; '.join(reasons[:SAID])}{more}; every rule: {docs[0]}{beside}")
