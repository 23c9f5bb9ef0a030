"""The table of files that people write: a name, and the model that reads it.

docs/schemas/NAME.schema.json and the field table `<!-- fields: NAME -->` in docs/ are made from the model.
"""

from dataclasses import dataclass

from pydantic import BaseModel

from feature_store.mapping_file import MappingFile
from feature_store.measurement_mapping_file import MeasurementMappingFile
from feature_store.sources.metric_map import MetricMap
from feature_store.sources.production_map import ProductionMap
from models.configuration_file import ConfigurationFile
from models.tasks.kinds import kind_names, kind_of
from models.verification.language.specification_file import SpecificationFields, SpecificationFile
from pipelines.values_file import ValuesFile
from serving.predictions.extender_file import ExtenderFile


@dataclass(frozen=True)
class WrittenFile:
    """A kind of file. title: what editors show."""

    title: str
    model: type[BaseModel]


def _of_kinds() -> dict[str, WrittenFile]:
    """A task file of each kind of task, and what else people write for that kind."""
    files = {}
    for name in kind_names():
        kind = kind_of(name, "models/tasks")
        files[f"task-{name}"] = WrittenFile(f"Assay: task of the kind {name}", kind.task_file)
        files |= {each: WrittenFile(f"Assay: {each.replace('-', ' ')}", kind.other_files[each])
                  for each in kind.other_files}
    return files


FILES: dict[str, WrittenFile] = {
    "mlflow": WrittenFile("Assay: mlflow.yaml", ConfigurationFile),
    "telemetry-mapping": WrittenFile("Assay: mapping of a file of telemetry", MappingFile),
    "measurement-mapping": WrittenFile("Assay: mapping of a file of measurements", MeasurementMappingFile),
    "metric-map": WrittenFile("Assay: metric map", MetricMap),
    "specification": WrittenFile("Assay: SPEC.yaml of assay verify", SpecificationFile),
    "task-specification": WrittenFile("Assay: specification of a workload in a task file", SpecificationFields),
    "production-map": WrittenFile("Assay: metric map that makes a training set", ProductionMap),
    "scheduler-extender": WrittenFile("Assay: Kubernetes scheduler's extender of assay serve", ExtenderFile),
    "cluster-values": WrittenFile("Assay: values.yaml of a cluster", ValuesFile),
    **_of_kinds(),
}
