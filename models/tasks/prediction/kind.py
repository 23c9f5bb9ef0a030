"""Prediction (vPALs): a quantity of a workload, say its latency, from telemetry of the workload itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from models.tasks.fields import located
from models.tasks.kind import OnFinished, OnProgress, OwnTask, ToProve
from models.tasks.supervised.task import SupervisedTask, supervised_fields

if TYPE_CHECKING:
    import pandas as pd

    from feature_store.schema import TelemetrySchema
    from models.audit.specification_audit import PropertyAudit
    from models.export.product import Versions
    from models.tasks.supervised.pages import SupervisedPages


class Prediction:
    """Implements `Kind`; what the stages import is imported in them."""

    def parse(self, data: Mapping[str, Any], where: str) -> SupervisedTask:
        """A SupervisedTask without further fields."""
        values = supervised_fields(data, "prediction", set(), where)
        with located(where):
            return SupervisedTask(**values)

    def check(self, task: SupervisedTask, workload: str) -> None:
        """The specification against the names of the features."""
        from models.tasks.supervised.featurizing import check_specification

        check_specification(task, workload)

    def shape(self, task: SupervisedTask, workload: str) -> tuple[int, ...]:
        """Inputs, hidden layers, one output."""
        return (len(task.features(workload)), *task.workload(workload).hidden, 1)

    def recognises(self, mapping: Any) -> bool:
        """A mapping of telemetry: whatever is no mapping of measurements."""
        from feature_store.measurement_mapping import is_measurement_mapping

        return not is_measurement_mapping(mapping)

    def own_task(self, mapping: Path, telemetry: Path, workloads: Sequence[str], seed: int) -> OwnTask:
        """The `task` of a mapping of telemetry, which may have been a path beside it: it travels inside."""
        from feature_store.mapping import load_mapping
        from feature_store.strict_yaml import read_yaml

        content = read_yaml(mapping, "mapping")
        task = load_mapping(mapping).task
        data = None if task is None else dict(task)
        travelling = content if data is None else {**content, "task": data}
        return OwnTask(data, yaml.safe_dump(travelling, sort_keys=False))

    def ingest(self, task: SupervisedTask, telemetry: str, mapping_yaml: str, output: Path) -> pd.DataFrame:
        """Of a file or of a Prometheus server, in the canonical schema."""
        from feature_store.errors import InputError
        from feature_store.mapping import parse_mapping
        from feature_store.sources.files import read_telemetry
        from feature_store.sources.production import is_prometheus, read_production
        from feature_store.sources.production_map import ProductionMap
        from feature_store.strict_yaml import parse_yaml
        from feature_store.written.model import parse_written

        if is_prometheus(telemetry):
            production = parse_written(ProductionMap, mapping_yaml or "{}", "metric map", "mapping")
            return read_production(telemetry, production)
        content = parse_yaml(mapping_yaml, "mapping", "mapping")
        if not self.recognises(content):
            raise InputError(f"task {task.name}: expected a mapping of telemetry, got one of measurements")
        return read_telemetry(Path(telemetry), parse_mapping(content, Path("mapping")) if mapping_yaml else None)

    def schema(self, task: SupervisedTask, workload: str) -> TelemetrySchema:
        """Inputs, configuration, target and the columns of the split."""
        return task.telemetry_schema(workload)

    def featurize(self, task: SupervisedTask, samples: pd.DataFrame, checks: Mapping[str, Sequence[Mapping[str, Any]]],
                  seed: int, validated: Path, output: Path, state: Path) -> dict[str, str]:
        """Each workload's rows, split and scaled by its own training side."""
        from models.tasks.supervised.featurizing import checked_specifications, featurize_telemetry

        return checked_specifications(task, featurize_telemetry(task, samples, checks, seed, output), output)

    def correlated(self, task: SupervisedTask) -> tuple[list[str], str]:
        """Inputs and target."""
        return [quantity.name for quantity in task.inputs], task.target.name

    def audit(self, task: SupervisedTask, workload: str, features: Path) -> tuple[PropertyAudit, ...]:
        """Of all rows."""
        from models.tasks.supervised.auditing import audit_rows, require_direction

        require_direction(task, workload)
        return audit_rows(task, workload, features / workload)

    def by_policy(self, task: SupervisedTask, workload: str) -> bool:
        """As the task file says."""
        return task.workload(workload).by_policy

    def pretrain(self, task: SupervisedTask, workloads: Sequence[str], seed: int, features: Path, output: Path,
                 progress: OnProgress) -> str:
        """A shared backbone with a head a workload."""
        from models.training.pretraining import pretrain, save_pretrained
        from models.training.workload import load_workload

        pool = {name: load_workload(features / name, task, name).pool_share() for name in workloads}
        save_pretrained(pretrain(pool, task.training, seed, progress), output)
        return ""

    def finetune(self, task: SupervisedTask, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
                 folders: Mapping[str, Path], finished: OnFinished, progress: OnProgress) -> None:
        """The counterexample-guided loop, and an unverified twin."""
        from models.tasks.supervised.finetuning import finetune_workloads

        finetune_workloads(task, workloads, seed, features, pretrained, folders, finished, progress)

    def product(self, task: SupervisedTask, workload: str, versions: Versions, features: Path,
                learner: Path) -> ToProve:
        """The network behind its scaling, and the task's specification over the workload's box."""
        from models.tasks.supervised.product import learner_to_prove

        return learner_to_prove(task, workload, versions, features, learner)

    def evidence(self, task: SupervisedTask, workload: str, seed: int, features: Path, verified: Path,
                 product: Path) -> dict[str, Any]:
        """Beside a gradient boosting baseline."""
        from models.tasks.supervised.evidence import boosting_baseline, load_trained, supervised_evidence

        trained = load_trained(task, workload, features, verified, product)
        found = supervised_evidence(task, trained, features, seed)
        baseline = boosting_baseline(task, trained.data, seed)
        return {**found, "metrics": found["metrics"] | baseline["metrics"], "baseline": baseline["baseline"]}

    def champion(self, task: SupervisedTask, workload: str, features: Path, bundle: Any) -> dict[str, Any]:
        """On the new test rows."""
        from models.tasks.supervised.evidence import champion_on_test_rows

        return champion_on_test_rows(task, workload, features, bundle)

    @property
    def pages(self) -> SupervisedPages:
        """Of a supervised model."""
        from models.tasks.supervised.pages import SupervisedPages

        return SupervisedPages()


KIND = Prediction()
