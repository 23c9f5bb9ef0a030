"""Control tasks, as the pipeline sees them: a policy is trained in an environment, proved, and judged by episodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feature_store.errors import InputError
from feature_store.written.model import Written
from models.tasks.attempts import attempt
from models.tasks.control.task import ControlTask
from models.tasks.kind import OnFinished, OnProgress, OwnTask
from models.tasks.monitored_kind import Looked, Watched
from models.tasks.shadowed_kind import ShadowedPolicy

if TYPE_CHECKING:
    import pandas as pd

    from feature_store.schema import TelemetrySchema
    from feature_store.strict_yaml import Lines
    from models.audit.specification_audit import PropertyAudit
    from models.export.product import Product, Versions
    from models.tasks.control.pages import ControlPages


class Control:
    """Implements `Kind`, `LearnsFromLogs`, `MonitoredKind`, `PretrainsWithoutTelemetry` and `ShadowedKind`."""

    watches_telemetry = False

    @property
    def task_file(self) -> type[ControlTask]:
        """See task.py."""
        return ControlTask

    @property
    def other_files(self) -> Mapping[str, type[Written]]:
        """What to ask of a Prometheus server, and what may be said of a file."""
        from models.tasks.control.load_map import LoadFile, LoadMap

        return {"load-map": LoadMap, "load-file": LoadFile}

    def check(self, task: ControlTask, workload: str, where: str, lines: Lines | None) -> None:
        """Names of settings, limits and rules, and the specification, against the environment."""
        from models.tasks.control.checking import check_task

        check_task(task, workload, where, lines)

    def shape(self, task: ControlTask, workload: str) -> tuple[int, ...]:
        """The hidden layers: all workloads are alike."""
        return task.hidden

    def default_telemetry(self, task: ControlTask) -> Path:
        """What comes with the environment."""
        from models.control.contract.systems import environment_of

        path = environment_of(task.environment).telemetry
        if path is None:
            raise InputError(f"telemetry: expected a file or a server (--telemetry), got none; environment "
                             f"{task.environment} comes without any")
        return path

    def own_files(self, task: ControlTask) -> tuple[Path, ...]:
        """The environment's module, where it does not come with Assay."""
        from models.control.contract.systems import own_files

        return own_files(task.environment)

    def logs(self, task: ControlTask, workloads: Sequence[str]) -> tuple[Path, ...]:
        """The parts of the controllers' logs that the workloads name."""
        from models.tasks.control.experience import PARTS, log_folder

        folders = [folder for name in workloads if (folder := log_folder(task, name)) is not None]
        return tuple(part for folder in folders for part in sorted(folder.glob(PARTS)))

    def recognises(self, mapping: Any) -> bool:
        """What may be said of a file of load; a load map is for a server, and needs no telling apart."""
        from models.tasks.control.telemetry import is_load_file

        return is_load_file(mapping)

    def own_task(self, mapping: Path, telemetry: Path, workloads: Sequence[str], seed: int) -> OwnTask:
        """None: what is said of a file of load brings no task along."""
        return OwnTask(None, mapping.read_text(encoding="utf-8"))

    def ingest(self, task: ControlTask, telemetry: str, mapping_yaml: str, output: Path) -> pd.DataFrame:
        """The load of each workload, whose origin it keeps."""
        from models.control.contract.systems import environment_of
        from models.tasks.control.telemetry import read_load

        load, origin = read_load(telemetry, mapping_yaml, tuple(environment_of(task.environment).columns))
        origin.write(output)
        return load

    def workload_column(self, mapping_yaml: str) -> str | None:
        """Always the same: a mapping says nothing about columns."""
        return "workload"

    def asked(self, task: ControlTask, mapping_yaml: str) -> Mapping[str, set[str]]:
        """By the load map."""
        from feature_store.written.model import parse_written
        from models.tasks.control.load_map import LoadMap

        found = parse_written(LoadMap, mapping_yaml or "{}", "load map", "--mapping")
        return {name: set(expressions) for name, expressions in found.workloads.items()}

    def schema(self, task: ControlTask, workload: str) -> TelemetrySchema:
        """The columns of the load."""
        from models.control.contract.systems import environment_of
        from models.tasks.control.telemetry import load_schema

        return load_schema(task, environment_of(task.environment), workload)

    def featurize(self, task: ControlTask, samples: Mapping[str, pd.DataFrame],
                  checks: Mapping[str, Sequence[Mapping[str, Any]]], seed: int, validated: Path, output: Path,
                  state: Path) -> dict[str, str]:
        """The longest stretch of load without a gap; that a twin can be made of it."""
        from models.control.contract.first_steps import check_settings_shown
        from models.control.contract.systems import environment_of
        from models.tasks.control.experience import parts_of_log
        from models.tasks.control.telemetry import write_load
        from models.tasks.control.workload import numbers_of, twin_of

        columns = tuple(environment_of(task.environment).columns)

        def work(name: str) -> None:
            write_load(samples[name], name, columns, task.minimum_rows, checks[name], output / name,
                       parts_of_log(task, name))
            check_settings_shown(twin_of(task, name, output), numbers_of(task, name), f"workload {name}")

        return {name: attempt(partial(work, name)) for name in checks}

    def correlated(self, task: ControlTask) -> tuple[list[str], str]:
        """Nothing: a load is one column."""
        return [], ""

    def audit(self, task: ControlTask, workload: str, features: Path) -> tuple[PropertyAudit, ...] | str:
        """Do the actions of the fallback rule obey, where it went in the workload's environment?"""
        from models.tasks.control.auditing import audit_actions

        return audit_actions(task, workload, features)

    def by_policy(self, task: ControlTask, workload: str) -> bool:
        """As the task file says."""
        return task.by_policy

    def pretrains_from(self, task: ControlTask) -> str:
        """Everything but the workloads, and how they are fine-tuned to: it acts in the environment of randomised
        applications."""
        later = {name for name in type(task.training).model_fields if name.startswith("finetune_")}
        return json.dumps(task.model_dump(mode="json", exclude={"workloads": True, "description": True,
                                                                "training": later}), sort_keys=True)

    def pretrain(self, task: ControlTask, workloads: Sequence[str], seed: int, features: Path, output: Path,
                 checkpoints: Path, progress: OnProgress) -> str:
        """The generic policy over randomised applications, and the tuned rules."""
        from models.tasks.control.pretraining import pretrain

        pretrain(task, seed, output, checkpoints, progress)
        return ""

    def finetune(self, task: ControlTask, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
                 folders: Mapping[str, Path], checkpoints: Path, finished: OnFinished, progress: OnProgress) -> None:
        """The generic policy, or the better one that it becomes in the workload's own environment."""
        from models.tasks.control.finetuning import finetune

        finetune(task, workloads, seed, features, pretrained, folders, checkpoints, finished, progress)

    def product(self, task: ControlTask, workload: str, versions: Versions, features: Path,
                learner: Path) -> Product:
        """The policy with its scaling inside: raw telemetry in, targets out."""
        from models.tasks.control.product import product_of_learner

        return product_of_learner(task, workload, versions, features, learner)

    def evidence(self, task: ControlTask, workload: str, seed: int, features: Path, verified: Path,
                 product: Path) -> dict[str, Any]:
        """Held-out episodes of the exported file beside the rules."""
        from models.tasks.control.evidence import control_evidence

        return control_evidence(task, workload, seed, features, verified, product)

    def champion(self, task: ControlTask, workload: str, features: Path, bundle: Any) -> dict[str, Any]:
        """The champion's file in the same episodes."""
        from models.tasks.control.evidence import champion_in_episodes

        return champion_in_episodes(task, workload, features, bundle.model)

    @property
    def pages(self) -> ControlPages:
        """See pages.py."""
        from models.tasks.control.pages import ControlPages

        return ControlPages()

    def shadow_report(self, task: ControlTask, workload: str, folder: Path, policy: ShadowedPolicy,
                      task_path: str) -> tuple[dict[str, Any], str]:
        """See shadow/report.py."""
        from models.tasks.control.shadow.report import shadow_report

        return shadow_report(task, workload, folder, policy, task_path)

    def watch(self, task: ControlTask, workload: str, watched: Watched) -> Looked:
        """By the log of its controller."""
        from models.tasks.control.monitoring import watch_log

        return watch_log(task, workload, watched)


KIND = Control()
