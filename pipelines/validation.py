"""What task, mapping and telemetry mean together, before anything runs: `assay validate`.

A `TrainRequest` (request.py) has been read and checked already. Here the telemetry is read as `ingest` would read it,
and judged by the data gate that stops workloads in a run (feature_store/expectations.py); nothing is trained or kept.
A Prometheus server is not asked: what its metric map would give is all that is said.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from components.ingest import ingest_samples
from feature_store.dropping import BadRowsFound, drop_bad_rows
from feature_store.mapping_file import ColumnFields, MappingFile
from feature_store.measurement_dropping import bad_runs_in
from feature_store.measurement_mapping import is_measurement_mapping
from feature_store.measurement_mapping_file import MeasurementMappingFile, texts
from feature_store.origin import Origin
from feature_store.samples import Samples
from feature_store.schema import TelemetrySchema
from feature_store.sources.production import is_prometheus
from feature_store.strict_yaml import parse_yaml
from feature_store.written.model import check_written
from models.tasks.kinds import kind_of
from pipelines.request import TrainRequest

MANY = 100_000  # values of a column that are kept of a workload
Values = npt.NDArray[np.float64]

@dataclass(frozen=True)
class ColumnFound:
    """A column of the models, over the rows of all workloads that have it.

    Attributes:
        name: as the task calls it.
        unit: that the models get it in.
        role: "input" or "target".
        source: what it is made of, in the words of the mapping; "": the column of the same name.
        minimum, median, maximum: in `unit`; None: there is no number, or no row to look at. The median takes MANY
            values of a workload at most.
    """

    name: str
    unit: str
    role: str
    source: str
    minimum: float | None
    median: float | None
    maximum: float | None


@dataclass(frozen=True)
class WorkloadFound:
    """One workload.

    Attributes:
        name: of the workload.
        rows: of its telemetry that are left; None: it is a server's, and was not asked for.
        inputs: those that the telemetry has; needed: how many its model takes.
        missing: columns that it lacks, the target among them.
        target: what its model predicts, each with its unit.
        failures: rules of the data gate that its rows break, each a sentence; they stop it in a run.
        warnings: what a run would warn of.
        bad_rows: what the mapping lets be dropped, or is too much of it (BadRowsFound in feature_store/dropping.py);
            None: it lets nothing be dropped.
    """

    name: str
    rows: int | None
    inputs: tuple[str, ...]
    needed: int
    missing: tuple[str, ...]
    target: str
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    bad_rows: BadRowsFound | None = None

    @property
    def fits(self) -> bool:
        """Whether a run would train it."""
        return not self.failures and not self.missing


@dataclass(frozen=True)
class Understanding:
    """Everything that was understood."""

    task: str
    kind: str
    columns: tuple[ColumnFound, ...]
    workloads: tuple[WorkloadFound, ...]

    @property
    def fits(self) -> bool:
        """Whether a run would train every workload."""
        return all(workload.fits for workload in self.workloads)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        workloads = [{**asdict(workload), "fits": workload.fits} for workload in self.workloads]
        return {"fits": self.fits, "task": self.task, "kind": self.kind,
                "columns": [asdict(column) for column in self.columns], "workloads": workloads}


def understand(request: TrainRequest) -> Understanding:
    """What the request's files say of each workload.

    Raises:
        InputError: the telemetry or the mapping cannot be read.
    """
    kind = kind_of(request.task.kind, "task")
    schemas = {name: kind.schema(request.task, name) for name in request.workloads}
    if is_prometheus(request.telemetry):
        asked = kind.asked(request.task, request.mapping_yaml)
        workloads = [_promised(schemas[name], asked) for name in request.workloads]
        numbers: dict[str, list[Values]] = {}
    else:
        with tempfile.TemporaryDirectory() as folder:
            ingest_samples(request.task, kind, request.telemetry, request.mapping_yaml, Path(folder))
            numbers, workloads = _judged(Samples(Path(folder)), schemas, Origin.read(Path(folder)))
            bad_runs = bad_runs_in(Path(folder))
            workloads = [replace(one, bad_rows=bad_runs.get(one.name, one.bad_rows)) for one in workloads]
    sources = _sources(request.mapping_yaml)
    return Understanding(request.task.name, request.task.kind, tuple(_columns(numbers, schemas, sources)),
                         tuple(workloads))


def _judged(samples: Samples, schemas: Mapping[str, TelemetrySchema],
            origin: Origin) -> tuple[dict[str, list[Values]], list[WorkloadFound]]:
    """Of the rows that a run would go on with: the finite numbers of each column, an array a workload; what they are
    worth.
    """
    from feature_store.expectations import DataGate

    gate, numbers, found = DataGate(origin), defaultdict[str, list[Values]](list), []
    for name, schema in schemas.items():
        rows, bad_rows = drop_bad_rows(samples.to_judge(name), schema, origin)
        result = gate.judge(rows, schema, bad_rows, list(samples))
        rows = rows[rows["workload"] == name]
        one = _workload(schema, len(rows), set(rows.columns),
                        tuple(failure.message for failure in result.failures if failure.rule != "column_present"),
                        tuple(failure.message for failure in result.warnings))
        found.append(replace(one, bad_rows=bad_rows))
        for column in {**schema.features, **schema.target}:
            if column in rows:
                values = pd.to_numeric(rows[column], errors="coerce").to_numpy(np.float64)
                numbers[column].append(_thinned(values[np.isfinite(values)]))
    return numbers, found


def _thinned(values: Values) -> Values:
    """The values; of very many both ends and some between, evenly spaced in their order of size."""
    if len(values) <= MANY:
        return values
    return np.sort(values)[np.linspace(0, len(values) - 1, MANY).astype(int)]


def _promised(schema: TelemetrySchema, asked: Mapping[str, set[str]]) -> WorkloadFound:
    """What a server's metric map has of a workload."""
    if schema.workload not in asked:
        return _workload(schema, None, set(), (f"the metric map has no workload {schema.workload}",), ())
    return _workload(schema, None, asked[schema.workload], (), ())


def _workload(schema: TelemetrySchema, rows: int | None, present: set[str], failures: tuple[str, ...],
              warnings: tuple[str, ...]) -> WorkloadFound:
    needed = (*schema.features, *schema.target, *(name for name in schema.split_by if rows is not None))
    return WorkloadFound(
        schema.workload, rows, tuple(name for name in schema.features if name in present), len(schema.features),
        tuple(dict.fromkeys(name for name in needed if name not in present)),
        "; ".join(f"{name}, {column.unit}" if column.unit else name for name, column in schema.target.items()),
        failures, (*warnings, *_without_ends(schema)))


def _without_ends(schema: TelemetrySchema) -> Iterator[str]:
    """A warning of each target in a unit whose answers nothing holds; a logarithm has no ends."""
    for name, column in schema.target.items():
        if column.unit and column.minimum is None and column.maximum is None and not column.unit.startswith("ln("):
            yield (f"target {name} must have a `minimum` or a `maximum`, in {column.unit}, got neither: a model "
                   "may answer what cannot be, such as a negative latency; give the least value that can be")


def _columns(numbers: Mapping[str, list[Values]], schemas: Mapping[str, TelemetrySchema],
             sources: Mapping[str, str]) -> Iterable[ColumnFound]:
    roles = {name: ("input", column.unit) for schema in schemas.values() for name, column in schema.features.items()}
    roles |= {name: ("target", column.unit) for schema in schemas.values() for name, column in schema.target.items()}
    for name, (role, unit) in roles.items():
        finite = np.concatenate(numbers.get(name, [np.empty(0)]))
        seen = (float(finite.min()), float(np.median(finite)), float(finite.max())) if len(finite) else (None,) * 3
        yield ColumnFound(name, unit, role, sources.get(name, ""), *seen)


def _sources(mapping_yaml: str) -> dict[str, str]:
    """What the mapping makes each column of; {} where it is none of a file's columns."""
    content = parse_yaml(mapping_yaml, "mapping", "mapping")
    if is_measurement_mapping(content):
        file = check_written(MeasurementMappingFile, content, "mapping", "mapping")
        return {name: " or ".join(texts(column.column)) or " * ".join(texts(column.product))
                for name, column in file.configuration.items()}
    if isinstance(content, Mapping) and "columns" in content:
        return {name: _source(column) for name, column in
                check_written(MappingFile, content, "mapping", "mapping").columns.items()}
    return {}


def _source(column: ColumnFields) -> str:
    scale = "" if column.scale == 1.0 else f" * {column.scale:g}"
    return f"{column.column}{scale}{f' in {column.unit}' if column.unit else ''}"
