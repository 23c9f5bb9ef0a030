"""The steps of the `train` pipeline called one after the other in this process, as pipelines/train.py wires them.

Without kfp and its processes a whole run takes seconds. tests/golden holds the wiring itself, tests/e2e the real run.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from components.audit import run_audit
from components.export import run_export
from components.featurize import run_featurize
from components.finetune import forget_finished, run_finetune
from components.gate import run_gate
from components.ingest import run_ingest
from components.pages import run_pages
from components.pretrain import run_pretrain
from components.progress import PROGRESS_VARIABLE, read_events
from components.register import run_register
from components.report import run_report
from components.validate import run_validate
from components.verify import run_verify
from models.configuration import Configuration, load_configuration
from tests.e2e import tiny

CODE_VERSION = "c0de"
COMMAND = "assay run --task tiny.yaml --telemetry samples.parquet --seed 0"
# mlflow 3.17 on sqlalchemy 2.1 sets lazy="noload" on its own tables: https://github.com/mlflow/mlflow
IGNORED_WARNING = "ignore:The ``noload`` loader strategy is deprecated"


@dataclass(frozen=True)
class Steps:
    """One run's folders below `folder`, named as the pipeline's artifacts."""

    folder: Path
    task: dict[str, Any]
    telemetry: str
    workloads: tuple[str, ...]
    seed: int = 0

    @property
    def task_yaml(self) -> str:
        return yaml.safe_dump(self.task)

    def ingest(self, mapping_yaml: str = "") -> dict[str, Any]:
        return run_ingest(self.task_yaml, self.telemetry, mapping_yaml, self.folder / "samples")

    def validate(self) -> dict[str, Any]:
        return run_validate(self.task_yaml, list(self.workloads), self.folder / "samples", self.folder / "validated",
                            self.folder / "docs")

    def featurize(self) -> dict[str, str]:
        return run_featurize(self.task_yaml, list(self.workloads), self.seed, self.folder / "validated",
                             self.folder / "featurized")

    def audit(self) -> dict[str, Any]:
        return run_audit(self.task_yaml, list(self.workloads), [self.folder / "featurized"], self.folder / "features")

    def pretrain(self) -> None:
        run_pretrain(self.task_yaml, self.seed, CODE_VERSION, self.folder / "features", self.folder / "pretrained")

    def fan_out(self, workloads: Sequence[str] = ()) -> None:
        """finetune -> verify -> export of a shard; of all workloads where none is named."""
        features, at, shard = self.folder / "features", self.folder.joinpath, list(workloads or self.workloads)
        run_finetune(self.task_yaml, shard, self.seed, CODE_VERSION, features, at("pretrained"), at("learner"))
        forget_finished(self.task_yaml, shard, self.seed, CODE_VERSION, features, at("pretrained"))
        run_verify(self.task_yaml, shard, self.seed, CODE_VERSION, features, at("learner"), at("verified"))
        run_export(self.task_yaml, shard, self.seed, CODE_VERSION, COMMAND, features, at("verified"), at("bundle"))

    def train(self) -> None:
        """Everything up to the bundles."""
        self.ingest()
        self.validate()
        self.featurize()
        self.audit()
        self.pretrain()
        self.fan_out()

    def gate(self) -> bool:
        return run_gate(self.task_yaml, list(self.workloads), self.folder / "features",
                        [self.folder / "bundle"], self.folder / "gated")

    def register(self, scheduled: bool = False) -> dict[str, dict[str, Any]]:
        """The entries by workload."""
        entries = run_register(list(self.workloads), self.telemetry, scheduled, self.folder / "features",
                               self.folder / "gated", self.folder / "registered")
        return {entry["workload"]: entry for entry in entries}

    def pages(self, run_name: str = "here") -> None:
        at = self.folder.joinpath
        run_pages(self.task_yaml, list(self.workloads), run_name, at("features"), at("gated"), at("registered"),
                  at("pages"))

    def report(self, run_name: str = "here") -> dict[str, Any]:
        """Of pages and report: the summary that the command line prints."""
        at = self.folder.joinpath
        self.pages(run_name)
        run_report(self.task_yaml, run_name, at("features"), at("gated"), at("registered"), [at("pages")], at("page"))
        (last,) = [event for event in self.events() if event["event"] == "result"][-1:]
        summary: dict[str, Any] = last["summary"]
        return summary

    def events(self) -> list[dict[str, Any]]:
        return read_events(Path(os.environ[PROGRESS_VARIABLE]))[0]


@contextmanager
def project(folder: Path, approval: str = "auto") -> Iterator[Configuration]:
    """A state folder of its own for the length of the block: what the command line tells every step."""
    folder.mkdir(parents=True, exist_ok=True)
    path = tiny.write_yaml(tiny.configuration(approval), folder / "mlflow.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_CONFIG", str(path))
        patch.setenv("ASSAY_HOME", str(folder / "home"))
        patch.setenv(PROGRESS_VARIABLE, str(folder / "events.jsonl"))
        working = folder / "working"
        working.mkdir(exist_ok=True)
        patch.chdir(working)
        yield load_configuration(path)
        assert not list(working.iterdir())  # MLflow's default is a database in the working folder


def prepare(folder: Path, frame: pd.DataFrame, task: dict[str, Any], workloads: Sequence[str] = (),
            seed: int = 0) -> Steps:
    """Telemetry on disk, and a run that has not begun."""
    path = folder / "samples.parquet"
    frame.to_parquet(path, index=False)
    return Steps(folder / f"run-{seed}", task, str(path), tuple(workloads) or tuple(task["workloads"]), seed)
