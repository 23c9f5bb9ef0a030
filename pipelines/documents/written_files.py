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
from models.verification.language.specification_file import SpecificationFields, SpecificationFile


@dataclass(frozen=True)
class WrittenFile:
    """A kind of file. title: what editors show."""

    title: str
    model: type[BaseModel]


FILES: dict[str, WrittenFile] = {
    "mlflow": WrittenFile("Assay: mlflow.yaml", ConfigurationFile),
    "telemetry-mapping": WrittenFile("Assay: mapping of a file of telemetry", MappingFile),
    "measurement-mapping": WrittenFile("Assay: mapping of a file of measurements", MeasurementMappingFile),
    "metric-map": WrittenFile("Assay: metric map", MetricMap),
    "specification": WrittenFile("Assay: SPEC.yaml of assay verify", SpecificationFile),
    "task-specification": WrittenFile("Assay: specification of a workload in a task file", SpecificationFields),
    "production-map": WrittenFile("Assay: metric map that makes a training set", ProductionMap),
}
