"""Prediction (vPALs): a quantity of a workload, say its latency, from telemetry of the workload itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from models.tasks.kind import OnFinished, OnProgress, OwnTask
from models.tasks.monitored_kind import Looked, Watched
from models.tasks.prediction.task import PredictionTask

if TYPE_CHECKING:
    import pandas as pd

    from feature_store.schema import TelemetrySchema
    from feature_store.strict_yaml import Lines
    from feature_store.written.model import Written
    from models.audit.specification_audit import PropertyAudit
    from models.export.product import Product, Versions
    from models.tasks.supervised.pages import SupervisedPages


class Prediction:
    """Implements `Kind` and `MonitoredKind`; what the stages import is imported in them."""

    watches_telemetry = True

    @property
    def task_file(self) -> type[PredictionTask]:
        """Of a supervised task without further fields."""
        return PredictionTask

    @property
    def other_files(self) -> Mapping[str, type[Written]]:
        """None."""
        return {}

    def check(self, task: PredictionTask, workload: str, where: str, lines: Lines | None) -> None:
        """The specification against the names of the features."""
        from models.tasks.supervised.featurizing import check_specification

        check_specification(task, workload, where, lines)

    def shape(self, task: PredictionTask, workload: str) -> tuple[int, ...]:
        """Inputs, hidden layers, one output."""
        return (len(task.features(workload)), *task.workload(workload).hidden, 1)

    def default_telemetry(self, task: PredictionTask) -> Path:
        """The recorded campaign."""
        from feature_store.recorded import DEFAULT_TELEMETRY

        return DEFAULT_TELEMETRY

    def own_files(self, task: PredictionTask) -> tuple[Path, ...]:
        """None."""
        return ()

    def recognises(self, mapping: Any) -> bool:
        """A mapping of telemetry: whatever is no mapping of measurements."""
        from feature_store.measurement_mapping import is_measurement_mapping

        return not is_measurement_mapping(mapping)

    def own_task(self, mapping: Path, telemetry: Path, workloads: Sequence[str], seed: int) -> OwnTask:
        """The `task` of a mapping of telemetry, which may have been a path beside it: it travels inside."""
        from feature_store.mapping import parse_mapping
        from feature_store.strict_yaml import read_located_yaml

        content, lines = read_located_yaml(mapping, "mapping file")
        task = parse_mapping(content, mapping, lines).task
        if task is None:
            return OwnTask(None, yaml.safe_dump(content, sort_keys=False))
        where, lines = f"{mapping}: task", lines.below("task")
        if isinstance(content["task"], str):
            path = mapping.parent / content["task"]
            where, lines = str(path), read_located_yaml(path, "task file")[1]
        travelling = yaml.safe_dump({**content, "task": dict(task)}, sort_keys=False)
        return OwnTask(task, travelling, where, lines)

    def ingest(self, task: PredictionTask, telemetry: str, mapping_yaml: str, output: Path) -> pd.DataFrame:
        """Of a file, whose columns' origin it keeps, or of a Prometheus server, in the canonical schema."""
        from feature_store.errors import InputError
        from feature_store.mapping import parse_mapping
        from feature_store.sources.files import read_with_origin
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
        frame, origin = read_with_origin(Path(telemetry),
                                         parse_mapping(content, Path("mapping")) if mapping_yaml else None)
        origin.write(output)
        return frame

    def workload_column(self, mapping_yaml: str) -> str | None:
        """As the mapping says."""
        from feature_store.mapping import parse_mapping
        from feature_store.strict_yaml import parse_yaml

        content = parse_yaml(mapping_yaml, "mapping", "mapping")
        return parse_mapping(content, Path("mapping")).workload.column if mapping_yaml else "workload"

    def asked(self, task: PredictionTask, mapping_yaml: str) -> Mapping[str, set[str]]:
        """The machine's metrics, the configuration and the latency."""
        from feature_store.schema import TARGET
        from feature_store.sources.production_map import ProductionMap
        from feature_store.written.model import parse_written

        found = parse_written(ProductionMap, mapping_yaml or "{}", "metric map", "--mapping")
        metrics = found.metric_map().metrics
        return {name: {*metrics, *entry.configuration, TARGET} for name, entry in found.workloads.items()}

    def schema(self, task: PredictionTask, workload: str) -> TelemetrySchema:
        """Inputs, configuration, target and the columns of the split."""
        return task.telemetry_schema(workload)

    def featurize(self, task: PredictionTask, samples: Mapping[str, pd.DataFrame],
                  checks: Mapping[str, Sequence[Mapping[str, Any]]], seed: int, validated: Path, output: Path,
                  state: Path) -> dict[str, str]:
        """Each workload's rows, split and scaled by its own training side."""
        from models.tasks.supervised.featurizing import featurize_telemetry

        return featurize_telemetry(task, samples, checks, output)

    def correlated(self, task: PredictionTask) -> tuple[list[str], str]:
        """Inputs and target."""
        return [quantity.name for quantity in task.inputs], task.target.name

    def audit(self, task: PredictionTask, workload: str, features: Path) -> tuple[PropertyAudit, ...]:
        """Of all rows."""
        from models.tasks.supervised.auditing import audit_rows, require_direction

        require_direction(task, workload)
        return audit_rows(task, workload, features / workload)

    def by_policy(self, task: PredictionTask, workload: str) -> bool:
        """As the task file says."""
        return task.workload(workload).by_policy

    def pretrain(self, task: PredictionTask, workloads: Sequence[str], seed: int, features: Path, output: Path,
                 checkpoints: Path, progress: OnProgress) -> str:
        """A shared backbone with a head a workload."""
        from models.training.pretraining import nothing_to_pretrain, pretrain, save_pretrained
        from models.training.workload import load_workload

        if why := nothing_to_pretrain([task.workload(name).hidden for name in workloads], task.training):
            return why
        pool = {name: load_workload(features / name, task, name).pool_share() for name in workloads}
        save_pretrained(pretrain(pool, task.training, seed, progress), output)
        return ""

    def finetune(self, task: PredictionTask, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
                 folders: Mapping[str, Path], checkpoints: Path, finished: OnFinished, progress: OnProgress) -> None:
        """The counterexample-guided loop, and an unverified twin."""
        from models.tasks.supervised.finetuning import finetune_workloads

        finetune_workloads(task, workloads, seed, features, pretrained, folders, finished, progress)

    def product(self, task: PredictionTask, workload: str, versions: Versions, features: Path,
                learner: Path) -> Product:
        """The network behind its scaling, and the task's specification over the workload's box."""
        from models.tasks.supervised.product import product_of_learner

        return product_of_learner(task, workload, versions, features, learner)

    def evidence(self, task: PredictionTask, workload: str, seed: int, features: Path, verified: Path,
                 product: Path) -> dict[str, Any]:
        """Beside a gradient boosting baseline."""
        import pandas as pd

        from feature_store.trained_rows import SEEN, TrainedRows
        from models.tasks.supervised.evidence import boosting_baseline, load_trained, supervised_evidence

        trained = load_trained(task, workload, features, verified, product)
        found = supervised_evidence(task, trained, features, seed)
        baseline = boosting_baseline(task, trained.data, seed)
        rows = pd.read_parquet(features / workload / "train.parquet")
        names = task.telemetry_schema(workload).numeric
        seen = TrainedRows.of(rows, tuple(names), task.split_by, task.test_share)
        return {**found, "metrics": found["metrics"] | baseline["metrics"], "baseline": baseline["baseline"],
                SEEN: seen.to_json()}

    def champion(self, task: PredictionTask, workload: str, features: Path, bundle: Any) -> dict[str, Any]:
        """On the new test rows that it was not trained on."""
        from models.tasks.supervised.evidence import champion_on_test_rows

        return champion_on_test_rows(task, workload, features, bundle)

    @property
    def pages(self) -> SupervisedPages:
        """Of a supervised model."""
        from models.tasks.supervised.pages import SupervisedPages

        return SupervisedPages()

    def watch(self, task: PredictionTask, workload: str, watched: Watched) -> Looked:
        """By telemetry."""
        from models.tasks.supervised.monitoring import watch_rows

        return watch_rows(task, workload, watched)


KIND = Prediction()
