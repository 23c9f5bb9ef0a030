"""Few-shot prediction (FLASH, Sizeless): run times of a workload from one to a few measured runs, and a pool of others.

Sources: the papers named in models/adaptation/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.tasks.few_shot.settings import POOL
from models.tasks.few_shot.task import FewShotTask
from models.tasks.kind import OnFinished, OnProgress, OwnTask

if TYPE_CHECKING:
    import pandas as pd

    from feature_store.schema import TelemetrySchema
    from feature_store.strict_yaml import Lines
    from feature_store.written.model import Written
    from models.audit.specification_audit import PropertyAudit
    from models.export.product import Product, Versions
    from models.tasks.few_shot.pages import FewShotPages


class FewShotKind:
    """Implements `Kind`; what the stages import is imported in them."""

    @property
    def task_file(self) -> type[FewShotTask]:
        """Of a supervised task with `few_shot`."""
        return FewShotTask

    @property
    def other_files(self) -> Mapping[str, type[Written]]:
        """What stands below `task` in a mapping of measurements."""
        from models.tasks.few_shot.measurements_task_file import MeasurementsTask

        return {"measurements-task": MeasurementsTask}

    def check(self, task: FewShotTask, workload: str, where: str, lines: Lines | None) -> None:
        """The specification against the names of the features."""
        from models.tasks.supervised.featurizing import check_specification

        check_specification(task, workload, where, lines)

    def shape(self, task: FewShotTask, workload: str) -> tuple[int, ...]:
        """Inputs, hidden layers, one output."""
        return (len(task.features(workload)), *task.workload(workload).hidden, 1)

    def default_telemetry(self, task: FewShotTask) -> Path:
        """None: measurements are a user's."""
        from feature_store.errors import InputError

        raise InputError("telemetry: expected a file of measurements (--telemetry), got none")

    def own_files(self, task: FewShotTask) -> tuple[Path, ...]:
        """None."""
        return ()

    def recognises(self, mapping: Any) -> bool:
        """A mapping of measurements: workload, configuration, target."""
        from feature_store.measurement_mapping import is_measurement_mapping

        return is_measurement_mapping(mapping)

    def own_task(self, mapping: Path, telemetry: Path, workloads: Sequence[str], seed: int) -> OwnTask:
        """What the mapping's `task` and the measurements make: workloads, inputs, specification (measurements_task.py).

        Raises:
            InputError: the mapping has no `task`.
        """
        from feature_store.errors import InputError
        from feature_store.measurement_mapping import parse_measurement_mapping
        from feature_store.measurements import load_measurements
        from feature_store.strict_yaml import read_located_yaml
        from models.tasks.few_shot.measurements_task import expand

        content, lines = read_located_yaml(mapping, "mapping file")
        parsed = parse_measurement_mapping(content, str(mapping), lines)
        if parsed.task is None:
            raise InputError(f"mapping of measurements must have a `task` that demands a direction, got none "
                             f"({mapping}); for example task: {{demand: {{nodes: decreasing}}}}")
        where = f"{mapping}: task"
        data = expand(parsed.task, load_measurements(telemetry, parsed), workloads, seed, where, lines.below("task"))
        return OwnTask(data, mapping.read_text(encoding="utf-8"), where)

    def ingest(self, task: FewShotTask, telemetry: str, mapping_yaml: str, output: Path) -> pd.DataFrame:
        """A row a run."""
        from models.tasks.few_shot.featurizing import ingest_measurements

        return ingest_measurements(telemetry, mapping_yaml, output)

    def asked(self, task: FewShotTask, mapping_yaml: str) -> Mapping[str, set[str]]:
        """Never asked: measurements are a file."""
        from feature_store.errors import InputError

        raise InputError(f"telemetry: expected a file of measurements, got a server (task {task.name})")

    def schema(self, task: FewShotTask, workload: str) -> TelemetrySchema:
        """Inputs of the configuration, the log target and the configuration's name."""
        return task.telemetry_schema(workload)

    def featurize(self, task: FewShotTask, samples: Mapping[str, pd.DataFrame],
                  checks: Mapping[str, Sequence[Mapping[str, Any]]], seed: int, validated: Path, output: Path,
                  state: Path) -> dict[str, str]:
        """What the pool knows, and each workload's rows out of it."""
        from models.tasks.few_shot.featurizing import featurize_few_shot
        from models.tasks.supervised.featurizing import checked_specifications

        status = featurize_few_shot(task, samples, checks, seed, validated, output, state)
        return checked_specifications(task, status, output)

    def correlated(self, task: FewShotTask) -> tuple[list[str], str]:
        """Inputs and target."""
        return [quantity.name for quantity in task.inputs], task.target.name

    def audit(self, task: FewShotTask, workload: str, features: Path) -> tuple[PropertyAudit, ...]:
        """Of the workload's measured configurations, each the mean of its runs."""
        from models.tasks.few_shot.featurizing import audit_few_shot
        from models.tasks.supervised.auditing import require_direction

        require_direction(task, workload)
        return audit_few_shot(features, workload, task)

    def by_policy(self, task: FewShotTask, workload: str) -> bool:
        """As the task says."""
        return task.workload(workload).by_policy

    def pretrain(self, task: FewShotTask, workloads: Sequence[str], seed: int, features: Path, output: Path,
                 checkpoints: Path, progress: OnProgress) -> str:
        """One head for all workloads, which their embeddings tell apart."""
        from models.training.pretraining import POOL_HEAD, nothing_to_pretrain, pretrain, save_pretrained
        from models.training.workload import few_shot_pool, load_workload

        if why := nothing_to_pretrain([task.workload(name).hidden for name in workloads], task.training):
            return why
        loaded = {name: load_workload(features / name, task, name) for name in workloads}
        pool = {POOL_HEAD: few_shot_pool(features / POOL, loaded)}
        save_pretrained(pretrain(pool, task.training, seed, progress), output)
        return ""

    def finetune(self, task: FewShotTask, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
                 folders: Mapping[str, Path], checkpoints: Path, finished: OnFinished, progress: OnProgress) -> None:
        """The counterexample-guided loop, and an unverified twin."""
        from models.tasks.supervised.finetuning import finetune_workloads

        finetune_workloads(task, workloads, seed, features, pretrained, folders, finished, progress)

    def product(self, task: FewShotTask, workload: str, versions: Versions, features: Path, learner: Path) -> Product:
        """As of a prediction, over the hull of the embeddings, with the encoder that makes one of new runs."""
        from feature_store.scaling import FeatureScaling
        from models.tasks.few_shot.encoder_file import few_shot_encoder
        from models.tasks.supervised.product import product_of_learner

        folder = features / workload
        scaling = FeatureScaling.from_json((folder / "scaling.json").read_text())
        encoder = few_shot_encoder(folder, features / POOL, scaling, task, vars(versions))
        return product_of_learner(task, workload, versions, features, learner, encoder)

    def evidence(self, task: FewShotTask, workload: str, seed: int, features: Path, verified: Path,
                 product: Path) -> dict[str, Any]:
        """Beside the closed form that it was trained on, and the mean of the workload's runs."""
        from feature_store.trained_rows import SEEN
        from models.tasks.few_shot.evidence import FEW_SHOT_BASELINE, few_shot_facts, few_shot_metrics, seen_support
        from models.tasks.supervised.evidence import load_trained, supervised_evidence

        trained = load_trained(task, workload, features, verified, product)
        data, folder = trained.data, features / workload
        found = supervised_evidence(task, trained, features, seed)
        facts = few_shot_facts(folder, features / POOL, trained.network, data.scaling, data.specification, seed)
        return {**found, "baseline": FEW_SHOT_BASELINE,
                "metrics": found["metrics"] | few_shot_metrics(folder, trained.network, data.scaling,
                                                               task.accuracy_tolerance),
                "case_counts": found["case_counts"] | {"test_mape": found["metrics"]["test_rows"]},
                SEEN: seen_support(folder, [quantity.name for quantity in task.measured_features(workload)]).to_json(),
                "few_shot": {"note": task.workload(workload).note, **facts}}

    def champion(self, task: FewShotTask, workload: str, features: Path, bundle: Any) -> dict[str, Any]:
        """On the configurations that it was not given, with its own embedding: in the coordinates of its own pool."""
        from models.tasks.supervised.evidence import champion_on_test_rows

        embedding = bundle.contract.embedding
        inputs = {} if embedding is None else dict(zip(embedding.inputs, embedding.own, strict=True))
        return champion_on_test_rows(task, workload, features, bundle, inputs)

    @property
    def pages(self) -> FewShotPages:
        """Of a supervised model, and more."""
        from models.tasks.few_shot.pages import FewShotPages

        return FewShotPages()


KIND = FewShotKind()
