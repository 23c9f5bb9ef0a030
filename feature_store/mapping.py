"""The mapping of a user's own telemetry file to the schema, read from YAML.

Flow: `assay run --telemetry FILE --mapping mapping.yaml` loads it here, sources/files.py applies it. A
mapping:

    workload:    {constant: redis}            or {column: app}
    environment: {constant: base}             or {column: cluster}; default: base
    combination: {column: colocation}         optional: which workloads ran together; default: unknown
    time:        {column: ts, unit: s, zone: UTC, window_s: 60}
                 unit s, ms, us, ns or iso; zone: of times that carry none; window_s: length of a row's
                 window. Without `time` the rows get a synthetic order and the checks of time are skipped.
    columns:     {psi_io_some: {column: io, unit: percent, scale: 1.0}, latency_ms: {column: rt, unit: us}}
                 the left side is a column of the schema or of the task; value * scale is in `unit`.
    keep:        [model]                      further columns, as they are (what the task splits by)
    task:        task.yaml                    path beside the mapping, or the task itself; passed on unread
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from feature_store.errors import InputError, nearest
from feature_store.names import check_label, check_workload_name
from feature_store.schema import CONFIGURATION, IDENTITY, METRICS, TARGETS
from feature_store.strict_yaml import read_yaml
from feature_store.units import conversion_factor
from feature_store.yaml_fields import fields_of, number

TIME_UNITS = ("iso", "s", "ms", "us", "ns")
UNKNOWN_COMBINATION = "unknown"  # the file does not say which workloads ran together
DEFAULT_ENVIRONMENT = "base"


@dataclass(frozen=True)
class Label:
    """A text column of the schema: one constant for all rows, or the column of the file that holds it."""

    constant: str | None = None
    column: str | None = None


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
    """See the module docstring. `task` is the task as parsed YAML, for the layer that knows tasks."""

    workload: Label
    columns: Mapping[str, ColumnSource]
    environment: Label = Label(constant=DEFAULT_ENVIRONMENT)
    combination: Label = Label(constant=UNKNOWN_COMBINATION)
    time: TimeSource | None = None
    keep: tuple[str, ...] = ()
    task: Mapping[str, Any] | None = None
    where: str = "mapping"

    def source_columns(self) -> tuple[str, ...]:
        """The columns that must stand in the file, each once."""
        labels = (self.workload.column, self.environment.column, self.combination.column)
        names = [name for name in labels if name is not None]
        if self.time is not None:
            names.append(self.time.column)
        names += [source.column for source in self.columns.values()]
        return tuple(dict.fromkeys([*names, *self.keep]))


def load_mapping(path: Path) -> TelemetryMapping:
    """Reads a mapping file.

    Raises:
        InputError: the file is missing or no YAML, or a field is unknown, missing or of the wrong kind.
    """
    return parse_mapping(read_yaml(path, "mapping file"), path)


def parse_mapping(content: Any, path: Path) -> TelemetryMapping:
    """Builds a mapping from parsed YAML; a task that is a path stands beside `path`.

    Raises:
        InputError: a field is unknown, missing or of the wrong kind.
    """
    known = {"workload", "environment", "combination", "time", "columns", "keep", "task"}
    data = fields_of(content, known, str(path))
    for key in ("workload", "columns"):
        if key not in data:
            raise InputError(f"mapping must have the field {key!r}, got {', '.join(data) or 'nothing'} "
                             f"({path})")
    task = _task(data.get("task"), path)
    optional: dict[str, Any] = {}
    for key in ("environment", "combination"):
        if key in data:
            optional[key] = _label(data[key], f"{path}: {key}")
    if "time" in data:
        optional["time"] = _time(data["time"], f"{path}: time")
    columns = _columns(data["columns"], _target_units(task), f"{path}: columns")
    keep = _keep(data.get("keep", []), columns, f"{path}: keep")
    workload = _label(data["workload"], f"{path}: workload")
    if workload.constant is not None:
        check_workload_name(workload.constant, f"{path}: workload.constant")
    return TelemetryMapping(workload=workload, columns=columns,
                            keep=keep, task=task, where=str(path), **optional)


def _label(entry: Any, where: str) -> Label:
    data = fields_of(entry, {"constant", "column"}, where)
    if len(data) != 1:
        raise InputError(f"label must have either `constant` or `column`, got {entry!r} ({where})")
    return Label(**{key: str(value) for key, value in data.items()})


def _time(entry: Any, where: str) -> TimeSource:
    data = fields_of(entry, {"column", "unit", "zone", "window_s"}, where)
    if "column" not in data:
        raise InputError(f"time must name its `column`, got {entry!r} ({where})")
    unit = str(data.get("unit", "iso"))
    if unit not in TIME_UNITS:
        raise InputError(f"unit of time must be one of {', '.join(TIME_UNITS)}, got {unit!r} ({where}); "
                         + nearest(unit, TIME_UNITS))
    window_s = data.get("window_s")
    if window_s is not None and number(window_s, where) <= 0.0:
        raise InputError(f"window_s must be positive, got {window_s!r} ({where})")
    zone = str(data.get("zone", "UTC"))
    try:
        if zone != "UTC":  # known to pandas also where the machine has no time zone database
            ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = get_close_matches(zone, available_timezones(), n=1)
        raise InputError(f"zone must be in the time zone database, got {zone!r} ({where}); "
                         f"did you mean {near[0] if near else 'UTC'}?") from error
    return TimeSource(column=str(data["column"]), unit=unit, zone=zone,
                      window_s=None if window_s is None else float(window_s))


def _columns(entries: Any, units: Mapping[str, str], where: str) -> dict[str, ColumnSource]:
    if not isinstance(entries, Mapping) or not entries:
        raise InputError(f"columns must be a mapping with at least one entry, got {entries!r} ({where})")
    columns = {}
    for name, entry in entries.items():
        if name not in units:
            raise InputError(f"column must be in the schema or in the task, got {name!r} ({where}); "
                             + nearest(str(name), units))
        place = f"{where}.{name}"
        data = fields_of(entry, {"column", "unit", "scale"}, place)
        if "column" not in data:
            raise InputError(f"column must name the `column` of the file, got {entry!r} ({place})")
        scale = number(data.get("scale", 1.0), place)
        factor = scale * conversion_factor(str(data.get("unit", units[name])), units[name], place)
        columns[check_label(name, "name of a column", where)] = ColumnSource(column=str(data["column"]), factor=factor)
    return columns


def _keep(entries: Any, columns: Mapping[str, ColumnSource], where: str) -> tuple[str, ...]:
    if not isinstance(entries, list):
        raise InputError(f"keep must be a list of columns, got {entries!r} ({where})")
    keep = tuple(str(entry) for entry in entries)
    for name in keep:
        if name in columns or name in IDENTITY:
            raise InputError(f"kept column must not bear the name of another column, got {name!r} ({where}); "
                             "the mapping makes that one already")
    return keep


def _task(entry: Any, path: Path) -> Mapping[str, Any] | None:
    """The task as a mapping; a path is read relative to the mapping file."""
    if isinstance(entry, str):
        file = path.parent / entry
        if not file.is_file():
            raise InputError(f"task must be a mapping or the path of a YAML file, got {entry!r} "
                             f"({path}: task); there is no file {file}")
        entry = read_yaml(file, "task file")
    if entry is None:
        return None
    if not isinstance(entry, Mapping):
        raise InputError(f"task must be a mapping or the path of a YAML file, got {entry!r} ({path}: task)")
    return entry


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
