r"""The mapping of a file of measurements, read from YAML: what `measurements.py` applies.

    workload: {column: workload}
    configuration:                              # what may be chosen; the order is the order of a model's inputs
      provider: {column: provider, kind: category}
      family: {column: [A_family, B_family], kind: category, within: provider}
      nodes: {column: nodes, unit: count}
      cores: {column: size, values: {large: 2, xlarge: 4}, unit: cores}
      total_cores: {product: [cores, nodes], unit: cores}
    target: {name: runtime_s, column: target_runtime, unit: s}
    cost: {column: target_cost, unit: USD}      # optional; of one run, for recommendations
    metrics: {cpu_s: {column: cpu, unit: s}}    # optional; may be missing in some runs
    groups: {algorithm: {column: workload, pattern: '^[^-]+-(.+)$'}}    # optional; what splits may hold out
    failed: [{column: status, is_not: ok}, {column: runtime_s, equals: 3600}, {column: target_runtime, missing: true}]
    bad_rows: {drop: true, at_most: 1 %}        # optional; without it a bad run stops the load (bad_rows.py)
    task: {demand: {nodes: decreasing}}         # optional, passed on unread: what the `sizing` task is made from

`column` may be a list: the first that holds a value counts, and `default` where none does. `within` sets another
category before a category, `scale` (above 0) multiplies a number, `values` gives labels their numbers, `pattern` takes
the first group of a regular expression; a `default` is put in after `values` and `pattern`, before `scale`. A run is
failed by `is_not`, `equals`, `at_least` or `missing`. Labels are texts: 007 is not 7, nor 1.10
1.1; 2 and 2.0 are the same one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feature_store.bad_rows import BadRows
from feature_store.measurement_mapping_file import (
    CATEGORY,
    ColumnFields,
    MeasurementMappingFile,
    NumberFields,
    label,
    texts,
)
from feature_store.strict_yaml import Lines, read_located_yaml
from feature_store.written.model import check_written


@dataclass(frozen=True)
class ColumnRule:
    """How one canonical column is made of the columns of a file. factor: `scale`."""

    name: str
    columns: tuple[str, ...] = ()
    kind: str = "number"
    unit: str = ""
    factor: float = 1.0
    values: Mapping[str, float] | None = None
    pattern: str | None = None
    within: str | None = None
    product: tuple[str, ...] = ()
    default: str | float | None = None


@dataclass(frozen=True)
class FailureRule:
    """A run is failed where `column` is not one of `is_not`, equals `equals`, is at least `at_least`, or is missing."""

    column: str
    is_not: tuple[str, ...] = ()
    equals: float | None = None
    at_least: float | None = None
    missing: bool = False


@dataclass(frozen=True)
class MeasurementMapping:
    """How a file of measurements becomes the canonical table."""

    workload: ColumnRule
    configuration: tuple[ColumnRule, ...]
    target: ColumnRule
    cost: ColumnRule | None = None
    metrics: tuple[ColumnRule, ...] = ()
    groups: tuple[ColumnRule, ...] = ()
    failed: tuple[FailureRule, ...] = ()
    bad_rows: BadRows | None = None
    task: Mapping[str, Any] | None = None

    def source_columns(self) -> tuple[str, ...]:
        """The columns that must stand in the file, each once."""
        rules = [self.workload, *self.configuration, self.target, *self.metrics, *self.groups]
        rules += [self.cost] if self.cost else []
        names = [name for rule in rules for name in rule.columns] + [rule.column for rule in self.failed]
        return tuple(dict.fromkeys(names))

    def label_columns(self) -> tuple[str, ...]:
        """Those of them that hold labels, each once: of categories, of numbers by label, of states of a run."""
        rules = [self.workload, *self.configuration, *self.metrics, *self.groups, *([self.cost] if self.cost else [])]
        names = [name for rule in rules if rule.kind == CATEGORY or rule.values for name in rule.columns]
        return tuple(dict.fromkeys([*names, *(rule.column for rule in self.failed if rule.is_not)]))


def is_measurement_mapping(content: Any) -> bool:
    """Whether parsed YAML is such a mapping, and not one of telemetry (mapping.py)."""
    return isinstance(content, Mapping) and "configuration" in content


def load_measurement_mapping(path: Path) -> MeasurementMapping:
    """Reads a mapping file. Raises InputError: it is missing or no YAML, or a field is unknown or of the wrong kind."""
    content, lines = read_located_yaml(path, "mapping file")
    return parse_measurement_mapping(content, str(path), lines)


def parse_measurement_mapping(content: Any, where: str, lines: Lines | None = None) -> MeasurementMapping:
    """The mapping from parsed YAML; `where` and, where it was read from a file, `lines` go into messages."""
    file = check_written(MeasurementMappingFile, content, "mapping", where, lines)
    target, workload = file.target, file.workload
    return MeasurementMapping(
        workload=ColumnRule("workload", texts(workload.column), workload.kind, workload.unit, pattern=workload.pattern,
                            default=workload.default),
        configuration=tuple(_rule(name, column) for name, column in file.configuration.items()),
        target=ColumnRule(target.name, texts(target.column), unit=target.unit, factor=target.scale),
        cost=None if file.cost is None else _measured("cost", file.cost),
        metrics=tuple(_measured(name, column) for name, column in file.metrics.items()),
        groups=tuple(_rule(name, column) for name, column in file.groups.items()),
        failed=tuple(FailureRule(rule.column, texts(rule.is_not), rule.equals, rule.at_least, bool(rule.missing))
                     for rule in file.failed),
        bad_rows=None if file.bad_rows is None else file.bad_rows.policy(),
        task=file.task,
    )


def _measured(name: str, column: NumberFields) -> ColumnRule:
    return ColumnRule(name, texts(column.column), column.kind, column.unit, column.scale, column.values,
                      default=column.default)


def _rule(name: str, column: ColumnFields) -> ColumnRule:
    default = column.default
    if default is not None:
        default = label(default) if column.kind == CATEGORY else float(default)
    return ColumnRule(name, texts(column.column), column.kind, column.unit,
                      1.0 if column.scale is None else column.scale, column.values, column.pattern, column.within,
                      texts(column.product), default)
