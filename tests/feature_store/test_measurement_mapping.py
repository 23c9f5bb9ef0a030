from pathlib import Path

import pytest

from feature_store.errors import InputError
from feature_store.measurement_mapping import (
    ColumnRule,
    FailureRule,
    load_measurement_mapping,
    parse_measurement_mapping,
)
from feature_store.measurement_mapping_file import label

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
    with pytest.raises(InputError, match=rf"^mapping: the field '{key}' is missing \(m.yaml\)$"):
        parse(**{key: None})


@pytest.mark.parametrize(("fields", "message"), [
    ({"metric": {}}, r"metric: unknown field; did you mean 'metrics'\? \(m.yaml\)"),
    ({"target": {"column": "t", "scael": 2}}, r"target.scael: unknown field; did you mean 'scale'\? \(m.yaml\)"),
    ({"target": {"column": "t", "default": 2}}, "target.default: unknown field"),
    ({"cost": {"colum": "t"}}, r"cost.colum: unknown field; did you mean 'column'\? \(m.yaml\), and 1 more"),
    ({"workload": {"columns": "t"}}, r"workload.columns: unknown field; did you mean 'column'\?"),
    ({"metrics": {"cpu": {"column": "c", "units": "s"}}}, r"metrics.cpu.units: unknown field; did you mean 'unit'\?"),
    ({"failed": [{"column": "s", "isnot": "ok"}]}, r"failed\[0\].isnot: unknown field; did you mean 'is_not'\?"),
    ({2: {}}, r"expected a text as a name, got 2; write it in quotes \(m.yaml\)"),
])
def test_an_unknown_field_is_refused_with_the_nearest_name(fields, message):
    with pytest.raises(InputError, match=message):
        parse_measurement_mapping({**plain(), **fields}, "m.yaml")


@pytest.mark.parametrize("content", [None, [], "workload", 3])
def test_what_is_no_mapping_is_refused(content):
    with pytest.raises(InputError, match=r"^mapping: expected a mapping, got .* \(m.yaml\)$"):
        parse_measurement_mapping(content, "m.yaml")


@pytest.mark.parametrize(("fields", "message"), [
    ({"workload": "job"}, r"workload: expected a mapping, got 'job' \(m.yaml\)"),
    ({"configuration": ["nodes"]}, r"configuration: expected a mapping that is not empty, got \['nodes'\]"),
    ({"configuration": {}}, r"configuration: expected a mapping that is not empty, got \{\}"),
    ({"metrics": "cpu"}, "metrics: expected a mapping, got 'cpu'"),
    ({"failed": {"column": "s"}}, r"failed: expected a list, got \{'column': 's'\}"),
    ({"failed": ["s"]}, r"failed\[0\]: expected a mapping, got 's'"),
    ({"task": ["demand"]}, r"task: expected a mapping, got \['demand'\]"),
])
def test_the_wrong_kind_of_field_is_refused(fields, message):
    with pytest.raises(InputError, match=f"^{message}"):
        parse(**fields)


TEXTS = "expected a text that is not empty or a list of at least 1 entry"


@pytest.mark.parametrize(("entry", "message"), [
    ({}, ": expected either `column` or `product`, got neither"),
    ({"column": "a", "product": ["nodes"]}, ": expected either `column` or `product`, got both"),
    ({"column": 3}, rf".column: {TEXTS}, got 3 \(m.yaml\)"),
    ({"column": None}, rf".column: {TEXTS}, got nothing; leave the field out"),
    ({"column": ["a", 3]}, r".column\[1\]: expected a text that is not empty, got 3"),
    ({"column": []}, rf".column: {TEXTS}, got \[\]"),
    ({"product": []}, r".product: expected a list of at least 1 entry or a text that is not empty, got \[\]"),
    ({"column": "a", "kind": "categry"}, ".kind: expected number or category, got 'categry'; did you mean 'category'"),
    ({"column": "a", "scale": "2"}, ".scale: expected a number above 0, got '2'; write it without quotes"),
    ({"column": "a", "scale": True}, ".scale: expected a number above 0, got true"),
    ({"column": "a", "scale": float("nan")}, ".scale: expected a number above 0, got nan"),
    ({"column": "a", "scale": 10**400}, ".scale: expected a number above 0, got a number of more than 77 digits"),
    ({"column": "a", "scale": 0}, ".scale: expected a number above 0, got 0"),
    ({"column": "a", "scale": -2}, ".scale: expected a number above 0, got -2"),
    ({"column": "a", "scale": 2, "kind": "category"}, ".scale: expected kind: number beside it, got kind: category"),
    ({"column": "a", "values": {"b": 1}, "kind": "category"}, ".values: expected kind: number beside it, got"),
    ({"column": "a", "values": ["b"]}, r".values: expected a mapping that is not empty, got \['b'\]"),
    ({"column": "a", "values": {}}, r".values: expected a mapping that is not empty, got \{\}"),
    ({"column": "a", "values": {"b": "c"}}, ".values.b: expected a number, got 'c'"),
    ({"column": "a", "default": "none"}, ".default: expected a number, got 'none'"),
    ({"column": "a", "default": float("nan")}, ".default: expected .*, got nan"),
    ({"column": "a", "pattern": "(a)"}, ".pattern: expected kind: category beside it, got kind: number"),
    ({"column": "a", "within": "zone"}, ".within: expected kind: category beside it, got kind: number"),
    ({"product": ["nodes"], "kind": "category"}, ".product: expected kind: number beside it, got kind: category"),
    ({"product": ["nodes"], "values": {"a": 1}}, ".values: expected `column` beside it, got `product`"),
    ({"product": ["nodes"], "default": 1}, ".default: expected `column` beside it, got `product`"),
])
def test_a_column_that_breaks_a_rule_is_refused(entry, message):
    with pytest.raises(InputError, match=f"^configuration.x{message}"):
        configuration(x=entry)


@pytest.mark.parametrize(("pattern", "message"), [
    ("abc", r"^configuration.x.pattern: expected a regular expression with one group, got 0 groups: 'abc' \(m.yaml\)"),
    ("(a)(b)", "expected a regular expression with one group, got 2 groups"),
    ("(a", r"expected a regular expression, got '\(a': missing"),
])
def test_a_pattern_must_be_an_expression_with_one_group(pattern, message):
    with pytest.raises(InputError, match=message):
        configuration(x={"column": "a", "kind": "category", "pattern": pattern})


def test_a_group_that_does_not_capture_is_none():
    assert configuration(x={"column": "a", "kind": "category", "pattern": "(?:a|b)(c)"})


@pytest.mark.parametrize(("entry", "message"), [
    ({"product": ["nodes", "zone"]}, r"product: expected a number that stands above, got 'zone'; .*'?nodes'?"),
    ({"product": ["nodes", "nods"]}, r"expected a number that stands above, got 'nods'; did you mean 'nodes'\?"),
    ({"product": ["nodes", "x"]}, "product: expected a number that stands above, got 'x'"),
    ({"product": ["below"]}, "product: expected a number that stands above, got 'below'"),
    ({"column": "a", "kind": "category", "within": "nodes"}, "within: expected a category that stands above, got 'no"),
    ({"column": "a", "kind": "category", "within": "zon"}, r"stands above, got 'zon'; did you mean 'zone'\?"),
    ({"column": "a", "kind": "category", "within": "x"}, "within: expected a category that stands above, got 'x'"),
])
def test_a_column_can_only_be_made_of_columns_of_the_right_kind_above_it(entry, message):
    with pytest.raises(InputError, match=message):
        configuration(x=entry, below={"column": "b"})


@pytest.mark.parametrize(("fields", "place", "name"), [
    ({"configuration": {"runtime_s": {"column": "a"}}}, "configuration.runtime_s", "runtime_s"),
    ({"metrics": {"nodes": {"column": "a"}}}, "metrics.nodes", "nodes"),
    ({"groups": {"nodes": {"column": "a"}}}, "groups.nodes", "nodes"),
    ({"configuration": {"workload": {"column": "a"}}}, "configuration.workload", "workload"),
    ({"configuration": {"cost": {"column": "a"}}}, "configuration.cost", "cost"),
    ({"target": {"name": "cost", "column": "a"}}, "target.name", "cost"),
])
def test_a_name_can_stand_for_one_column_only(fields, place, name):
    with pytest.raises(InputError, match=f"^{place}: expected a name that no other column has, got '{name}'"):
        parse(**fields)


@pytest.mark.parametrize(("fields", "message"), [
    ({"metrics": {"cpu": {"column": "a", "kind": "category"}}}, "metrics.cpu.kind: expected number, got 'category'"),
    ({"metrics": {"cpu": {"column": "a"}, "all": {"product": ["cpu", "cpu"]}}}, "metrics.all.product: unknown field"),
    ({"cost": {"product": ["nodes"]}}, "cost.product: unknown field"),
    ({"cost": {"column": "a", "kind": "category"}}, "cost.kind: expected number, got 'category'"),
    ({"workload": {"column": "a", "kind": "number"}}, "workload.kind: expected category, got 'number'"),
    ({"workload": {"column": "a", "within": "zone"}}, "workload.within: unknown field"),
])
def test_a_workload_is_a_category_and_what_is_measured_a_number_of_the_file(fields, message):
    with pytest.raises(InputError, match=f"^{message}"):
        parse(**fields)


@pytest.mark.parametrize(("entry", "message"), [
    ({"column": "s"}, r"failed\[0\]: expected a condition \(is_not, equals, at_least or missing\) beside"),
    ({"is_not": "ok"}, r"failed\[0\]: the field 'column' is missing"), ({}, r"failed\[0\]: the field 'column' is"),
    ({"column": ["a", "b"], "missing": True}, r"failed\[0\].column: expected a text that is not empty, got \['a'"),
    ({"column": 3, "missing": True}, r"failed\[0\].column: expected a text that is not empty, got 3; write"),
])
def test_a_failure_must_name_a_column_and_a_condition(entry, message):
    with pytest.raises(InputError, match=f"^{message}"):
        parse(failed=[entry])


@pytest.mark.parametrize(("condition", "message"), [
    ({"is_not": []}, r"is_not: expected a text, a number or a list of at least 1 entry, got \[\]"),
    ({"is_not": True}, "is_not: expected a text, a number or a list of at least 1 entry, got true"),
    ({"is_not": None}, "is_not: expected a text, a number or a list of at least 1 entry, got nothing; leave"),
    ({"is_not": ["ok", True]}, r"is_not\[1\]: expected a text or a number, got true"),
    ({"equals": "timeout"}, "equals: expected a number, got 'timeout'"),
    ({"equals": None}, "equals: expected a number, got nothing"),
    ({"at_least": float("inf")}, "at_least: expected a number, got inf"),
    ({"missing": False}, "missing: expected true, got false"),
    ({"missing": "no"}, "missing: expected true, got 'no'"),
])
def test_a_condition_of_the_wrong_kind_is_refused_rather_than_never_met(condition, message):
    with pytest.raises(InputError, match=rf"^failed\[0\].{message}"):
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
    with pytest.raises(InputError, match=r"^mapping: expected a mapping, got nothing \(.*mapping.yaml, line 1\)"):
        load_measurement_mapping(write(""))
