"""The data sets of the learning benchmark, each as a user's own: a telemetry file, a mapping, a task.

| name | what | from |
| --- | --- | --- |
| recorded | five colocated workloads, task `performance` | this project: data/base/samples.parquet |
| linnos | IOs of a flash device, specification as the Ouroboros paper's DSL writes it (decreasing) | examples/linnos |
| linnos_increasing | the same with the opposite direction, which is that of the paper's code | examples/linnos |
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.data_folder import MISSING, required
from benchmarks.harness.isolation import ROOT
from benchmarks.pipeline.measurements.task_file import read_task
from feature_store.digests import content_digest
from feature_store.errors import InputError, nearest

RECORDED, LINNOS, LINNOS_INCREASING = "recorded", "linnos", "linnos_increasing"
DATA_SETS = {RECORDED: "Recorded telemetry", LINNOS: "LinnOS, decreasing as in the paper's DSL",
             LINNOS_INCREASING: "LinnOS, increasing as in the paper's code"}
DEFAULT = (RECORDED, LINNOS)
EXAMPLE = ROOT / "examples" / "linnos"
LINNOS_FILE = Path("linnos", "linnos.csv.gz")


@dataclass(frozen=True)
class DataSet:
    """What the pipeline is told of it, as `assay run --telemetry --mapping` would tell it.

    Attributes:
        mapping_yaml: "" where the file is in the schema.
        task: as parsed YAML.
        expected_cost: seconds of a learner, relative to those on the recorded telemetry; longer ones begin first.
    """

    name: str
    telemetry: Path
    mapping_yaml: str
    task: Mapping[str, Any]
    expected_cost: float = 1.0

    def versions(self) -> dict[str, str]:
        """data_version: digest of the telemetry; task_version: of mapping and task but for the training settings."""
        content = {**self.task, "training": None, "mapping": self.mapping_yaml}
        text = json.dumps(content, sort_keys=True)
        return {"data_version": content_digest(self.telemetry),
                "task_version": hashlib.sha256(text.encode()).hexdigest()}


def missing(name: str, telemetry: Path, folder: Path | None) -> str | None:
    """One line that says why a data set cannot be measured; None: it is there. Raises InputError for an unknown one."""
    if name not in DATA_SETS:
        raise InputError(f"data set must be known, got {name!r}; {nearest(name, DATA_SETS)}")
    if name == RECORDED:
        line = f"telemetry must be an existing file, got {telemetry}; see `assay record`"
        return None if telemetry.is_file() else line
    if folder is None:
        return f"data set {name} is left out: {MISSING} --data-folder"
    path = folder / LINNOS_FILE
    line = f"data set {name} is left out: there is no file {path}; examples/linnos/README.md says where it comes from"
    return None if path.is_file() else line


def open_data_sets(names: Sequence[str], telemetry: Path, folder: Path | None, work: Path) -> dict[str, DataSet]:
    """The data sets by name; what has to be prepared goes to files in `work`.

    Args:
        names: of the data sets.
        telemetry: the recorded telemetry.
        folder: public data, holds linnos/.
        work: where files that have to be made go.

    Raises:
        InputError: a file is missing, or the example's program refuses it.
    """
    data_sets = {}
    for name in names:
        if line := missing(name, telemetry, folder):
            raise InputError(line)
        data_sets[name] = DataSet(name, telemetry.resolve(), "", read_task()) if name == RECORDED else \
            _linnos(name, required(folder) / LINNOS_FILE, work)
    return data_sets


def _linnos(name: str, source: Path, work: Path) -> DataSet:
    """The example's files, its program run as a user runs it."""
    telemetry = work / "linnos.csv"
    if not telemetry.is_file():
        done = subprocess.run([sys.executable, str(EXAMPLE / "prepare.py"), str(source), str(telemetry)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise InputError(done.stderr.strip().rpartition("\n")[2])
    task, mapping = (yaml.safe_load((EXAMPLE / file).read_text()) for file in ("task.yaml", "mapping.yaml"))
    if name == LINNOS_INCREASING:
        for rule in task["workloads"]["linnos"]["specification"]["properties"]:
            rule["monotone"]["direction"] = "increasing"
    mapping_yaml = yaml.safe_dump({**mapping, "task": task}, sort_keys=False)
    return DataSet(name, telemetry.resolve(), mapping_yaml, task, expected_cost=3.0)
