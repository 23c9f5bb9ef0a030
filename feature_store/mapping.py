"""The mapping of a user's own telemetry file to the schema, read from YAML.

Flow: `assay run --telemetry FILE --mapping mapping.yaml` has it parsed here, sources/files.py applies it. A
mapping:

    workload:    {constant: redis}            or {column: app}, or of a wide file, which has a column a workload,
                 {column_names: "{workload}_{column}"}: `column` of `columns` is then that part of the name
    environment: {constant: base}             or {column: cluster}; default: base
    combination: {column: colocation}         optional: which workloads ran together; default: unknown
                 labels, as these three are, are texts: 007 is not 7, nor 1.10 1.1
    time:        {column: ts, unit: s, zone: UTC, window_s: 60}
                 unit s, ms, us, ns or iso; zone: of times that carry none; window_s: length of a row's
                 window. Without `time` the rows get a synthetic order and the checks of time are skipped.
    columns:     {psi_io_some: {column: io, unit: percent, scale: 1.0}, latency_ms: {column: rt, unit: us}}
                 the left side is a column of the schema or of the task; value * scale (above 0) is in `unit`.
    header:      {rows: 2, names: 1}          optional: rows of a CSV file above the data, and the one with the names
    bad_rows:    {drop: true, at_most: 1 %}   optional: a few bad rows are dropped (bad_rows.py)
    keep:        [model]                      further columns, as they are (what the task splits by)
    task:        task.yaml                    path beside the mapping, or the task itself; passed on unread
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feature_store.bad_rows import BadRows
from feature_store.errors import InputError, nearest
from feature_store.mapping_file import ColumnFields, LabelFields, MappingFile
from feature_store.schema import CONFIGURATION, METRICS, TARGETS
from feature_store.strict_yaml import Lines, read_yaml
from feature_store.units import conversion_factor
from feature_store.written.field_errors import field_error, value_text
from feature_store.written.model import check_written

UNKNOWN_COMBINATION = "unknown"  # the file does not say which workloads ran together
DEFAULT_ENVIRONMENT = "base"


@dataclass(frozen=True)
class Label:
    """A text column of the schema: one constant for all rows, or the column of the file that holds it.

    `column_names` (of the workload alone): it stands in the names of the columns that each workload has its own of.
    """

    constant: str | None = None
    column: str | None = None
    column_names: str | None = None


@dataclass(frozen=True)
class Header:
    """The rows of a CSV file above the data: how many, and which of them, from 1, names the columns."""

    rows: int = 1
    names: int = 1


@dataclass(frozen=True)
class TimeSource:
    """Where the start of a row's window stands in the file. `window_s` (s): None if the file does not say."""

    column: str
    unit: str = "iso"
    zone: str = "UTC"
    window_s: float | None = None


@dataclass(frozen=True)
class ColumnSource:
    """A numeric column: its name in the file, and the factor to the schema's unit."""

    column: str
    factor: float = 1.0


@dataclass(frozen=True)
class TelemetryMapping:
    """How a file becomes the canonical table. `task` is the task as parsed YAML, for the layer that knows tasks."""

    workload: Label
    columns: Mapping[str, ColumnSource]
    environment: Label = Label(constant=DEFAULT_ENVIRONMENT)
    combination: Label = Label(constant=UNKNOWN_COMBINATION)
    time: TimeSource | None = None
    keep: tuple[str, ...] = ()
    task: Mapping[str, Any] | None = None
    where: str = "mapping"
    header: Header = Header()
    bad_rows: BadRows | None = None

    def sources(self) -> dict[str, ColumnSource]:
        """Column of the canonical table -> where it stands in the file, for all that is read of the file."""
        labels = {"workload": self.workload, "environment": self.environment, "combination": self.combination}
        found = {name: ColumnSource(label.column) for name, label in labels.items() if label.column is not None}
        if self.time is not None:
            found["window_start"] = ColumnSource(self.time.column)
        return {**found, **self.columns, **{name: ColumnSource(name) for name in self.keep}}

    def source_columns(self) -> tuple[str, ...]:
        """The columns that must stand in the file, each once."""
        return tuple(dict.fromkeys(source.column for source in self.sources().values()))


def parse_mapping(content: Any, path: Path, lines: Lines | None = None) -> TelemetryMapping:
    """Builds a mapping from parsed YAML; a task that is a path stands beside `path`.

    Args:
        content: the parsed YAML.
        path: the mapping file, as errors name it.
        lines: of the values in it, where it was read from a file.

    Raises:
        InputError: a field is unknown, missing or of the wrong kind.
    """
    file = check_written(MappingFile, content, "mapping", str(path), lines)
    task = _task(file.task, path, lines)
    units = _target_units(task)
    columns = {name: _column(name, entry, units, str(path), lines) for name, entry in file.columns.items()}
    time = None if file.time is None else TimeSource(**file.time.model_dump())
    return TelemetryMapping(workload=_label(file.workload), columns=columns, environment=_label(file.environment),
                            combination=_label(file.combination), time=time, keep=file.keep, task=task,
                            where=str(path), header=Header(**file.header.model_dump()),
                            bad_rows=None if file.bad_rows is None else file.bad_rows.policy())


def _label(fields: LabelFields) -> Label:
    return Label(**fields.model_dump())


def _column(name: str, entry: ColumnFields, units: Mapping[str, str], where: str, lines: Lines | None) -> ColumnSource:
    place = ["columns", name]
    if name not in units:
        message = f"expected a column of the schema or of the task, got {name!r}; {nearest(name, units)}"
        raise field_error(place, message, where, lines)
    try:
        factor = entry.scale * conversion_factor(units[name] if entry.unit is None else entry.unit, units[name])
    except InputError as error:
        raise field_error([*place, "unit"], str(error), where, lines) from None
    return ColumnSource(column=entry.column, factor=factor)


def _task(entry: str | Mapping[str, Any] | None, path: Path, lines: Lines | None) -> Mapping[str, Any] | None:
    """The task as a mapping; a path is read relative to the mapping file."""
    if not isinstance(entry, str):
        return entry
    file = path.parent / entry
    if not file.is_file():
        message = f"expected a task or the path of a YAML file, got {entry!r}; there is no file {file}"
        raise field_error(["task"], message, str(path), lines)
    task = read_yaml(file, "task file")
    if not isinstance(task, Mapping):
        raise InputError(f"task: expected a mapping, got {value_text(task)} ({file}, line 1)")
    return task


def _target_units(task: Mapping[str, Any] | None) -> dict[str, str]:
    """Name -> unit of every column that a mapping may make: the schema's and the task's own."""
    units = {name: column.unit for name, column in {**METRICS, **CONFIGURATION, **TARGETS}.items()}
    for quantity in _quantities(task or {}):
        units[str(quantity["name"])] = str(quantity["unit"])
    return units


def _quantities(task: Any) -> Iterator[Mapping[str, Any]]:
    """Everything in a task that looks like a quantity, wherever it stands; the task's own reader judges."""
    if isinstance(task, Mapping):
        if "name" in task and "unit" in task:
            yield task
        for value in task.values():
            yield from _quantities(value)
    elif isinstance(task, list):
        for value in task:
            yield from _quantities(value)
