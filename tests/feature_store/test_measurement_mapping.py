from pathlib import Path

import pytest

from feature_store.errors import InputError
from feature_store.measurement_mapping import (
    ColumnRule,
    FailureRule,
    label,
    load_measurement_mapping,
    parse_measurement_mapping,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "sizing"
FULL = """
workload: {column: job, pattern: '^job-(.+)$'}
configuration:
  provider: {column: provider, kind: category}
  family: {column: [a_family, b_family], kind: category, within: provider, default: none}
  nodes: {column: nodes, unit: count}
  cores: {column: size, values: {large: 2, xlarge: 4}, unit: cores}
  memory: {column: mem, scale: 0.5, default: 16, unit: GiB}
  total: {product: [cores, nodes], scale: 2, unit: cores}
target: {name: runtime_s, column: took_ms, unit: s, scale: 0.001}
cost: {column: price, unit: USD}
metrics:
  cpu_s: {column: cpu, unit: s}
groups:
  algorithm: {column: job, pattern: '-(.+)$'}
failed:
  - {column: status, is_not: [ok, done]}
  - {column: took_ms, equals: 3600}
  - {column: took_ms, at_least: 9000}
  - {column: took_ms, missing: true}
"""


def plain(**fields):
    """A mapping that breaks no rule, with fields replaced; None leaves one out."""
    content = {"workload": {"column": "job"}, "configuration": {"nodes": {"column": "nodes"}},
               "target": {"name": "runtime_s", "column": "took"}, **fields}
    return {key: value for key, value in content.items() if value is not None}


def parse(**fields):
    return parse_measurement_mapping(plain(**fields), "m.yaml")


def configuration(**columns):
    return parse(configuration={"nodes": {"column": "nodes"}, "zone": {"column": "zone", "kind": "category"},
                                **columns})


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "mapping.yaml"
        path.write_text(text)
        return path

    return make


def test_every_field_is_read(write):
    mapping = load_measurement_mapping(write(FULL))
    provider, family, nodes, cores, memory, total = mapping.configuration
    assert mapping.workload == ColumnRule("workload", ("job",), "category", pattern="^job-(.+)$")
    assert provider == ColumnRule("provider", ("provider",), "category")
    assert family == ColumnRule("family", ("a_family", "b_family"), "category", within="provider", default="none")
    assert nodes == ColumnRule("nodes", ("nodes",), unit="count")
    assert cores == ColumnRule("cores", ("size",), unit="cores", values={"large": 2.0, "xlarge": 4.0})
    assert memory == ColumnRule("memory", ("mem",), unit="GiB", factor=0.5, default=16.0)
    assert total == ColumnRule("total", (), unit="cores", factor=2.0, product=("cores", "nodes"))
    assert mapping.target == ColumnRule("runtime_s", ("took_ms",), unit="s", factor=0.001)
    assert mapping.cost == ColumnRule("cost", ("price",), unit="USD")
    assert mapping.metrics == (ColumnRule("cpu_s", ("cpu",), unit="s"),)
    assert mapping.groups == (ColumnRule("algorithm", ("job",), "category", pattern="-(.+)$"),)
    assert mapping.failed == (FailureRule("status", is_not=("ok", "done")), FailureRule("took_ms", equals=3600.0),
                              FailureRule("took_ms", at_least=9000.0), FailureRule("took_ms", missing=True))


def test_the_columns_of_the_file_are_listed_once_each_in_the_order_of_the_mapping(write):
    assert load_measurement_mapping(write(FULL)).source_columns() == (
        "job", "provider", "a_family", "b_family", "nodes", "size", "mem", "took_ms", "cpu", "price", "status")


def test_what_is_optional_may_be_left_out():
    mapping = parse(target={"column": "took"})
    assert mapping.target.name == "target"
    assert (mapping.cost, mapping.metrics, mapping.groups, mapping.failed) == (None, (), (), ())


@pytest.mark.parametrize("name", ["cloudbandit", "scout"])
def test_the_examples_are_valid(name):
    mapping = load_measurement_mapping(EXAMPLES / f"{name}.yaml")
    assert (mapping.target.name, mapping.target.unit, mapping.cost.unit) == ("runtime_s", "s", "USD")


@pytest.mark.parametrize("key", ["workload", "configuration", "target"])
def test_a_field_that_must_be_there_is_named(key):
    with pytest.raises(InputError, match=rf"mapping must have the field '{key}', got .* \(m.yaml\)"):
        parse(**{key: None})


@pytest.mark.parametrize(("fields", "message"), [
    ({"metric": {}}, r"field must be known, got 'metric' \(m.yaml\); did you mean 'metrics'\?"),
    ({"target": {"column": "t", "scael": 2}}, r"got 'scael' \(m.yaml: target\); did you mean 'scale'\?"),
    ({"target": {"column": "t", "default": 2}}, r"got 'default' \(m.yaml: target\)"),
    ({"cost": {"colum": "t"}}, r"got 'colum' \(m.yaml: cost\); did you mean 'column'\?"),
    ({"workload": {"columns": "t"}}, r"got 'columns' \(m.yaml: workload\); did you mean 'column'\?"),
    ({"metrics": {"cpu": {"column": "c", "units": "s"}}}, r"got 'units' \(m.yaml: metrics.cpu\)"),
    ({"failed": [{"column": "s", "isnot": "ok"}]}, r"got 'isnot' \(m.yaml: failed\); did you mean 'is_not'\?"),
    ({2: {}}, r"field must be known, got 2 \(m.yaml\)"),
])
def test_an_unknown_field_is_refused_with_the_nearest_name(fields, message):
    with pytest.raises(InputError, match=message):
        parse_measurement_mapping({**plain(), **fields}, "m.yaml")


@pytest.mark.parametrize("content", [None, [], "workload", 3])
def test_what_is_no_mapping_is_refused(content):
    with pytest.raises(InputError, match=r"a mapping must stand here, got .* \(m.yaml\)"):
        parse_measurement_mapping(content, "m.yaml")


@pytest.mark.parametrize(("fields", "message"), [
    ({"workload": "job"}, r"a mapping must stand here, got 'job' \(m.yaml: workload\)"),
    ({"configuration": ["nodes"]}, r"a mapping of columns must stand here, got \['nodes'\]"),
    ({"configuration": {}}, "configuration must have at least one column, got none"),
    ({"metrics": "cpu"}, "a mapping of columns must stand here, got 'cpu'"),
    ({"failed": {"column": "s"}}, "a list must stand here, got {'column': 's'}"),
    ({"failed": ["s"]}, "a mapping must stand here, got 's'"),
])
def test_the_wrong_kind_of_field_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        parse(**fields)


@pytest.mark.parametrize(("entry", "message"), [
    ({}, "column must have either `column` or `product`, got {}"),
    ({"column": "a", "product": ["nodes"]}, "column must have either `column` or `product`"),
    ({"column": 3}, r"a text or a list of texts must stand here, got 3 \(m.yaml: configuration.x\)"),
    ({"column": ["a", 3]}, "a text or a list of texts must stand here"),
    ({"column": []}, r"a text or a list of texts must stand here, got \[\]"),
    ({"product": []}, r"a text or a list of texts must stand here, got \[\]"),
    ({"column": "a", "kind": "categry"}, "kind must be one of number, category, got 'categry' .* mean 'category'"),
    ({"column": "a", "scale": "2"}, r"a number must stand here, got '2' \(m.yaml: configuration.x: scale\)"),
    ({"column": "a", "scale": True}, "a number must stand here, got True"),
    ({"column": "a", "scale": float("nan")}, "a finite number must stand here, got nan"),
    ({"column": "a", "scale": 10**400}, "a finite number must stand here, got 1000"),
    ({"column": "a", "scale": 0}, "scale must be above 0, got 0"),
    ({"column": "a", "scale": -2}, "scale must be above 0, got -2"),
    ({"column": "a", "scale": 2, "kind": "category"}, "`scale` must belong to a number, got a category"),
    ({"column": "a", "values": {"b": 1}, "kind": "category"}, "`values` must belong to a number, got a category"),
    ({"column": "a", "values": ["b"]}, r"values must be a mapping of labels to numbers, got \['b'\]"),
    ({"column": "a", "values": {}}, "values must be a mapping of labels to numbers, got {}"),
    ({"column": "a", "values": {"b": "c"}}, r"a number must stand here, got 'c' \(m.yaml: configuration.x: values.b\)"),
    ({"column": "a", "default": "none"}, r"a number must stand here, got 'none' \(m.yaml: configuration.x: default\)"),
    ({"column": "a", "pattern": "(a)"}, "`pattern` must belong to a category, got a number"),
    ({"column": "a", "within": "zone"}, "`within` must belong to a category, got a number"),
    ({"product": ["nodes"], "kind": "category"}, "`product` must belong to a number, got a category"),
    ({"product": ["nodes"], "values": {"a": 1}}, "`values` must belong to a `column`, got a `product`"),
    ({"product": ["nodes"], "default": 1}, "`default` must belong to a `column`, got a `product`"),
])
def test_a_column_that_breaks_a_rule_is_refused(entry, message):
    with pytest.raises(InputError, match=message):
        configuration(x=entry)


@pytest.mark.parametrize(("pattern", "message"), [
    ("abc", r"pattern must have one group, got 0 \(m.yaml: configuration.x: abc\)"),
    ("(a)(b)", "pattern must have one group, got 2"),
    ("(a", "pattern must be a regular expression, got missing"),
])
def test_a_pattern_must_be_an_expression_with_one_group(pattern, message):
    with pytest.raises(InputError, match=message):
        configuration(x={"column": "a", "kind": "category", "pattern": pattern})


def test_a_group_that_does_not_capture_is_none():
    assert configuration(x={"column": "a", "kind": "category", "pattern": "(?:a|b)(c)"})


@pytest.mark.parametrize(("entry", "message"), [
    ({"product": ["nodes", "zone"]}, r"must be a number that stands above, got 'zone' .*; .*'?nodes'?"),
    ({"product": ["nodes", "nods"]}, r"must be a number that stands above, got 'nods' .*; did you mean 'nodes'\?"),
    ({"product": ["nodes", "x"]}, "must be a number that stands above, got 'x'"),
    ({"product": ["below"]}, "must be a number that stands above, got 'below'"),
    ({"column": "a", "kind": "category", "within": "nodes"}, "must be a category that stands above, got 'nodes'"),
    ({"column": "a", "kind": "category", "within": "zon"}, r"that stands above, got 'zon' .*; did you mean 'zone'\?"),
    ({"column": "a", "kind": "category", "within": "x"}, "must be a category that stands above, got 'x'"),
])
def test_a_column_can_only_be_made_of_columns_of_the_right_kind_above_it(entry, message):
    with pytest.raises(InputError, match=message):
        configuration(x=entry, below={"column": "b"})


@pytest.mark.parametrize(("fields", "name"), [
    ({"configuration": {"runtime_s": {"column": "a"}}}, "runtime_s"),
    ({"metrics": {"nodes": {"column": "a"}}}, "nodes"),
    ({"groups": {"nodes": {"column": "a"}}}, "nodes"),
    ({"configuration": {"workload": {"column": "a"}}}, "workload"),
    ({"configuration": {"cost": {"column": "a"}}}, "cost"),
    ({"target": {"name": "cost", "column": "a"}}, "cost"),
])
def test_a_name_can_stand_for_one_column_only(fields, name):
    with pytest.raises(InputError, match=f"columns must have distinct names, got '{name}' twice"):
        parse(**fields)


@pytest.mark.parametrize("fields", [
    {"metrics": {"cpu": {"column": "a", "kind": "category"}}},
    {"metrics": {"cpu": {"column": "a"}, "all": {"product": ["cpu", "cpu"]}}},
    {"cost": {"product": ["nodes"]}},
    {"cost": {"column": "a", "kind": "category"}},
    {"workload": {"column": "a", "kind": "number"}},
    {"workload": {"column": "a", "within": "zone"}},
])
def test_a_workload_is_a_category_and_what_is_measured_a_number_of_the_file(fields):
    with pytest.raises(InputError, match=r"must be a (number|category) of the file's columns alone"):
        parse(**fields)


@pytest.mark.parametrize("entry", [{"column": "s"}, {"is_not": "ok"}, {}, {"column": ["a", "b"], "missing": True},
                                   {"column": 3, "missing": True}])
def test_a_failure_must_name_a_column_and_a_condition(entry):
    with pytest.raises(InputError, match="rule must name a column and a condition"):
        parse(failed=[entry])


@pytest.mark.parametrize(("condition", "message"), [
    ({"is_not": []}, r"a text or a list of texts must stand here, got \[\]"),
    ({"is_not": True}, "a text or a list of texts must stand here"),
    ({"is_not": None}, "a text or a list of texts must stand here"),
    ({"equals": "timeout"}, "a number must stand here, got 'timeout'"),
    ({"equals": None}, "a number must stand here, got None"),
    ({"at_least": float("inf")}, "a finite number must stand here, got inf"),
    ({"missing": False}, "missing must be true, or not be there, got False"),
    ({"missing": "no"}, "missing must be true, or not be there, got 'no'"),
])
def test_a_condition_of_the_wrong_kind_is_refused_rather_than_never_met(condition, message):
    with pytest.raises(InputError, match=message):
        parse(failed=[{"column": "s", **condition}])


def test_a_number_may_be_what_a_column_must_be():
    assert parse(failed=[{"column": "exit", "is_not": 0}]).failed[0].is_not == ("0",)
    assert parse(failed=[{"column": "exit", "is_not": [0.0, "ok"]}]).failed[0].is_not == ("0", "ok")


def test_labels_that_yaml_reads_as_numbers_are_texts():
    assert configuration(x={"column": "a", "values": {2: 1, 4.0: 2, 1.5: 3}}).configuration[-1].values == {
        "2": 1.0, "4": 2.0, "1.5": 3.0}
    assert configuration(x={"column": "a", "kind": "category", "default": 2.0}).configuration[-1].default == "2"


@pytest.mark.parametrize(("value", "text"), [(2, "2"), (2.0, "2"), (2.5, "2.5"), ("2.0", "2.0"), (True, "True"),
                                             (-0.0, "0"), (float("inf"), "inf")])
def test_a_label_is_the_same_for_a_float_and_an_integer(value, text):
    assert label(value) == text


def test_a_name_that_stands_twice_in_the_file_is_refused_rather_than_the_first_one_lost(write):
    with pytest.raises(InputError, match=r"key must be given once, got 'nodes' twice \(.*mapping.yaml, line \d+\)"):
        load_measurement_mapping(write("workload: {column: a}\ntarget: {column: b}\n"
                                       "configuration: {nodes: {column: c}, nodes: {column: d}}"))


def test_a_file_that_is_missing_or_no_yaml_is_named(tmp_path, write):
    with pytest.raises(InputError, match=r"mapping file must be a readable file, got .*none.yaml"):
        load_measurement_mapping(tmp_path / "none.yaml")
    with pytest.raises(InputError, match=r"mapping file must be YAML, got .*mapping.yaml, line 1\)"):
        load_measurement_mapping(write("workload: {column"))
    with pytest.raises(InputError, match=r"a mapping must stand here, got None \(.*mapping.yaml\)"):
        load_measurement_mapping(write(""))
