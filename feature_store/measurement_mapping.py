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
    task: {demand: {nodes: decreasing}}         # optional, passed on unread: what the `sizing` task is made from

`column` may be a list: the first that holds a value counts, and `default` where none does. `within` sets another
category before a category, `scale` (above 0) multiplies a number, `values` gives labels their numbers, `pattern` takes
the first group of a regular expression; a `default` is put in after `values` and `pattern`, before `scale`. A run is
failed by `is_not`, `equals`, `at_least` or `missing`. Labels are texts; 2 and 2.0 are the same one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.names import check_label
from feature_store.strict_yaml import read_yaml
from feature_store.yaml_fields import fields_of, number

KINDS = ("number", "category")
_COLUMN = {"column", "kind", "unit", "scale", "values", "pattern", "within", "product", "default"}


@dataclass(frozen=True)
class ColumnRule:
    """How one canonical column is made; see the module docstring. factor: `scale`."""

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
    """See the module docstring."""

    workload: ColumnRule
    configuration: tuple[ColumnRule, ...]
    target: ColumnRule
    cost: ColumnRule | None = None
    metrics: tuple[ColumnRule, ...] = ()
    groups: tuple[ColumnRule, ...] = ()
    failed: tuple[FailureRule, ...] = ()
    task: Mapping[str, Any] | None = None

    def source_columns(self) -> tuple[str, ...]:
        """The columns that must stand in the file, each once."""
        rules = [self.workload, *self.configuration, self.target, *self.metrics, *self.groups]
        rules += [self.cost] if self.cost else []
        names = [name for rule in rules for name in rule.columns] + [rule.column for rule in self.failed]
        return tuple(dict.fromkeys(names))


def is_measurement_mapping(content: Any) -> bool:
    """Whether parsed YAML is such a mapping, and not one of telemetry (mapping.py)."""
    return isinstance(content, Mapping) and "configuration" in content


def load_measurement_mapping(path: Path) -> MeasurementMapping:
    """Reads a mapping file. Raises InputError: it is missing or no YAML, or a field is unknown or of the wrong kind."""
    return parse_measurement_mapping(read_yaml(path, "mapping file"), str(path))


def parse_measurement_mapping(content: Any, where: str) -> MeasurementMapping:
    """The mapping from parsed YAML; `where` goes into messages."""
    data = fields_of(content, {"workload", "configuration", "target", "cost", "metrics", "groups", "failed", "task"},
                     where)
    for key in ("workload", "configuration", "target"):
        if key not in data:
            raise InputError(f"mapping must have the field {key!r}, got {', '.join(data) or 'nothing'} ({where})")
    target = fields_of(data["target"], {"name", "column", "unit", "scale"}, f"{where}: target")
    target_rule = _rule(str(target.pop("name", "target")), target, f"{where}: target")
    cost = data.get("cost")
    mapping = MeasurementMapping(
        workload=_rule("workload", data["workload"], f"{where}: workload", "category"),
        configuration=_rules(data["configuration"], f"{where}: configuration"),
        target=target_rule,
        cost=None if cost is None else _rule("cost", cost, f"{where}: cost"),
        metrics=_rules(data.get("metrics", {}), f"{where}: metrics"),
        groups=_rules(data.get("groups", {}), f"{where}: groups", "category"),
        failed=_failures(data.get("failed", []), f"{where}: failed"),
        task=_task(data.get("task"), f"{where}: task"),
    )
    if not mapping.configuration:
        raise InputError(f"configuration must have at least one column, got none ({where})")
    rules = (*mapping.configuration, *mapping.metrics, *mapping.groups, target_rule)
    names = [rule.name for rule in rules] + ["workload", "cost"]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"columns must have distinct names, got {twice[0]!r} twice ({where})")
    measured = [*mapping.metrics, *([mapping.cost] if mapping.cost else [])]
    for rule, kind in [(mapping.workload, "category"), *((rule, "number") for rule in measured)]:
        if rule.kind != kind or rule.product or rule.within:
            raise InputError(f"{rule.name!r} must be a {kind} of the file's columns alone, got "
                             f"{'a product' if rule.product else '`within`' if rule.within else f'a {rule.kind}'} "
                             f"({where})")
    return mapping


def _task(data: Any, where: str) -> Mapping[str, Any] | None:
    if data is not None and not isinstance(data, Mapping):
        raise InputError(f"a mapping must stand here, got {data!r} ({where})")
    return data


def _rules(entries: Any, where: str, kind: str = "number") -> tuple[ColumnRule, ...]:
    if not isinstance(entries, Mapping):
        raise InputError(f"a mapping of columns must stand here, got {entries!r} ({where})")
    rules: list[ColumnRule] = []
    for name, entry in entries.items():
        rule = _rule(str(name), entry, f"{where}.{name}", kind)
        before = {one.name: one for one in rules}
        for other, must in [(other, "number") for other in rule.product] + [(rule.within, "category")]:
            if other is not None and (other not in before or before[other].kind != must):
                raise InputError(f"column must be a {must} that stands above, got {other!r} ({where}.{name}); "
                                 + nearest(other, [n for n, one in before.items() if one.kind == must]))
        rules.append(rule)
    return tuple(rules)


def _rule(name: str, entry: Any, where: str, kind: str = "number") -> ColumnRule:
    data = fields_of(entry, _COLUMN, where)
    if ("column" in data) == ("product" in data):
        raise InputError(f"column must have either `column` or `product`, got {entry!r} ({where})")
    kind = str(data.get("kind", kind))
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r} ({where}); {nearest(kind, KINDS)}")
    for key, of in (("values", "number"), ("scale", "number"), ("product", "number"), ("pattern", "category"),
                    ("within", "category")):
        if key in data and kind != of:
            raise InputError(f"`{key}` must belong to a {of}, got a {kind} ({where})")
    for key in ("values", "default"):
        if key in data and "product" in data:
            raise InputError(f"`{key}` must belong to a `column`, got a `product` ({where})")
    values = data.get("values")
    if "values" in data:
        if not isinstance(values, Mapping) or not values:
            raise InputError(f"values must be a mapping of labels to numbers, got {values!r} ({where})")
        values = {label(key): number(value, f"{where}: values.{key}") for key, value in values.items()}
    scale = number(data.get("scale", 1.0), f"{where}: scale")
    if scale <= 0:
        raise InputError(f"scale must be above 0, got {scale:g} ({where})")
    pattern = data.get("pattern")
    if pattern is not None:
        try:
            groups = re.compile(str(pattern)).groups
        except re.error as error:
            raise InputError(f"pattern must be a regular expression, got {error} ({where})") from error
        if groups != 1:
            raise InputError(f"pattern must have one group, got {groups} ({where}: {pattern})")
    check_label(name, "name of a column", where)
    check_label(str(data.get("unit", "")), "unit of a column", where, empty=True)
    columns, product = (_texts(data[key], where) if key in data else () for key in ("column", "product"))
    return ColumnRule(name, columns, kind, str(data.get("unit", "")), scale, values,
                      None if pattern is None else str(pattern),
                      None if "within" not in data else str(data["within"]), product,
                      _default(data.get("default"), kind, where))


def _default(value: Any, kind: str, where: str) -> str | float | None:
    if value is None:
        return None
    return number(value, f"{where}: default") if kind == "number" else label(value)


def label(value: Any) -> str:
    """The text of a category's value. 2.0 and 2 are the same, whatever a missing value made of a column's type."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _failures(entries: Any, where: str) -> tuple[FailureRule, ...]:
    if not isinstance(entries, list):
        raise InputError(f"a list must stand here, got {entries!r} ({where})")
    rules = []
    for entry in entries:
        data = fields_of(entry, {"column", "is_not", "equals", "at_least", "missing"}, where)
        if not isinstance(data.get("column"), str) or len(data) < 2:
            raise InputError(f"rule must name a column and a condition, got {entry!r} ({where})")
        if data.get("missing", True) is not True:
            raise InputError(f"missing must be true, or not be there, got {data['missing']!r} ({where})")
        is_not = data.get("is_not", ())
        labels = [label(one) if _is_number(one) else one for one in (is_not if isinstance(is_not, list) else [is_not])]
        equals, at_least = (number(data[key], where) if key in data else None for key in ("equals", "at_least"))
        rules.append(FailureRule(data["column"], _texts(labels, where) if "is_not" in data else (),
                                 equals, at_least, "missing" in data))
    return tuple(rules)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    """One text or a list of them."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str) for one in values):
        raise InputError(f"a text or a list of texts must stand here, got {value!r} ({where})")
    return tuple(values)
