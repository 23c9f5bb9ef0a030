"""Task files: what they say is understood, and what they say wrong is named."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from feature_store.errors import InputError
from feature_store.schema import METRICS
from models.tasks.quantity import Quantity
from models.tasks.task import load_task, parse_task, read_task
from models.training.methods import METHODS
from models.training.settings import TrainingSettings
from models.verification.language.specification_language import parse_specification

ROOT = Path(__file__).parents[3]
DATA: dict[str, Any] = {
    "name": "demo",
    "target": {"name": "delay", "unit": "s", "minimum": 0.0},
    "inputs": ["cpu_time", {"name": "heat", "unit": "K", "minimum": 0, "maximum": 400, "description": "of the die"}],
    "workloads": {
        "a": {"hidden": [8, 4], "configuration": ["batch_size"],
              "specification": {"properties": [{"monotone": {"features": ["cpu_time"]}}]}},
        "b": {},
    },
}


def parse(**changes: Any) -> Any:
    return parse_task({**copy.deepcopy(DATA), **changes}, "here")


def workload(**changes: Any) -> dict[str, Any]:
    return {"workloads": {"a": {**DATA["workloads"]["a"], **changes}}}


def test_a_task_is_read_with_its_defaults() -> None:
    task = parse()
    assert task.name == "demo" and task.description == ""
    assert task.target == Quantity(name="delay", unit="s", minimum=0.0)
    assert task.inputs[0] == Quantity(name="cpu_time", unit="share", minimum=0.0, maximum=1.0,
                                      description=METRICS["cpu_time"].description)
    assert task.inputs[1] == Quantity(name="heat", unit="K", minimum=0, maximum=400, description="of the die")
    assert task.workload("a").hidden == (8, 4) and task.workload("b").hidden == (64, 64)
    assert task.split_by == ("environment", "window_start") and task.test_share == 0.2
    assert task.training == TrainingSettings() and task.training.method == "monotone"


def test_features_are_the_inputs_and_then_the_workloads_own_configuration() -> None:
    task = parse()
    assert [q.name for q in task.features("a")] == ["cpu_time", "heat", "batch_size"]
    assert [q.name for q in task.features("b")] == ["cpu_time", "heat"]


def test_the_telemetry_schema_has_the_features_the_target_and_the_split() -> None:
    schema = parse(split_by=["environment"], minimum_rows=7).telemetry_schema("a")
    assert schema.workload == "a" and schema.split_by == ("environment",) and schema.minimum_rows == 7
    assert list(schema.features) == ["cpu_time", "heat", "batch_size"] and list(schema.target) == ["delay"]
    heat = schema.features["heat"]
    assert (heat.unit, heat.minimum, heat.maximum, heat.description) == ("K", 0, 400, "of the die")
    assert list(schema.numeric) == ["cpu_time", "heat", "batch_size", "delay"]


def test_training_settings_are_taken_over() -> None:
    settings = parse(training={"method": "counterexample_guided", "epochs": 3, "learning_rate": 0.5}).training
    assert (settings.method, settings.epochs, settings.learning_rate) == ("counterexample_guided", 3, 0.5)
    assert settings.batch_size == TrainingSettings().batch_size


def test_parsing_does_not_change_what_it_is_given() -> None:
    data = copy.deepcopy(DATA)
    parse_task(data, "here")
    assert data == DATA


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nam": "x"}, r"nam: unknown field; did you mean 'name'\? \(here\)"),
        ({5: 1}, r"\[5\]: expected a text as a name, got 5; write it in quotes \(here\)"),
        ({"training": {"epoch": 3}}, r"training.epoch: unknown field; did you mean 'epochs'\?"),
        ({"training": [1]}, r"training: expected a mapping, got \[1\]"),
        ({"training": None}, "training: expected a mapping, got nothing"),
        (workload(hiden=[3]), r"workloads.a.hiden: unknown field; did you mean 'hidden'\?"),
        ({"inputs": ["cpu_tim"]},
         r"inputs\[0\]: expected a column of the schema or a mapping, got 'cpu_tim'; did you mean 'cpu_time'\?"),
        ({"inputs": [{"name": "heat", "unit": "K", "minimun": 0}]},
         r"inputs\[0\].minimun: unknown field; did you mean 'minimum'"),
        ({"inputs": [{"name": "heat"}]}, r"inputs\[0\]: the field 'unit' is missing"),
        ({"inputs": "cpu_time"}, "inputs: expected a list, got 'cpu_time'"),
        ({"inputs": [5]}, r"inputs\[0\]: expected a column of the schema or a mapping, got 5"),
        ({"inputs": ["cpu_time", "cpu_time"]}, r"inputs\[1\]: expected a name that no other column has, got 'cpu_t"),
        ({"inputs": [{"name": "heat", "unit": "K", "minimum": "low"}]},
         r"inputs\[0\].minimum: expected a number, got 'low'"),
        ({"inputs": [{"name": "heat", "unit": "K", "maximum": math.nan}]},
         r"inputs\[0\].maximum: expected a number, got nan"),
        ({"inputs": []}, "workloads.b: expected `inputs` of the task or a `configuration`, got neither"),
        ({"inputs": ["cpu_time", {"name": "delay", "unit": "s"}]},
         r"inputs\[1\]: expected a name that no other column has, got 'delay'"),
        (workload(configuration=[{"name": "heat", "unit": "K"}]),
         r"workloads.a.configuration\[0\]: expected a name that no other column has, got 'heat'"),
        (workload(configuration=["batchsize"]),
         r"workloads.a.configuration\[0\]: .* got 'batchsize'; did you mean 'batch_size'"),
        (workload(specification=[]), r"workloads.a.specification: expected a mapping, got \[\]"),
        (workload(hidden=300), "workloads.a.hidden: expected a list of at least 1 entry, got 300"),
        (workload(hidden=[]), r"workloads.a.hidden: expected a list of at least 1 entry, got \[\]"),
        (workload(hidden=["wide"]), r"workloads.a.hidden\[0\]: expected a whole number above 0, got 'wide'"),
        (workload(hidden=[4, 0]), r"workloads.a.hidden\[1\]: expected a whole number above 0, got 0"),
        (workload(hidden=[2.5]), "expected a whole number above 0, got 2.5"),
        (workload(by_policy="yes"), "workloads.a.by_policy: expected true or false, got 'yes'"),
        ({"workloads": {}}, "workloads: expected a mapping that is not empty, got {}"),
        ({"workloads": ["a"]}, "workloads: expected a mapping"),
        ({"workloads": {"a": None}}, "workloads.a: expected a mapping, got nothing"),
        ({"workloads": {5: {}}}, r"workloads\[5\]: expected a text as a name, got 5; write it in quotes"),
        ({"target": "latency"},
         "target: expected a column of the schema or a mapping, got 'latency'; did you mean 'latency_ms'"),
        ({"target": None}, "target: expected a column of the schema or a mapping, got nothing"),
        ({"name": 5}, "name: expected a text, got 5; write it in quotes"),
        ({"name": ""}, "name: expected letters, digits, _ and -, at most 128 and no - in front, got ''"),
        ({"name": "a/b"}, "name: expected letters, .* got 'a/b'"),
        ({"workloads": {"../../precious": {}}}, r"expected letters, .* single dots .* got '\.\./\.\./precious'"),
        ({"workloads": {"_pool": {}}}, "expected letters, .* no _ or - in front, got '_pool'"),
        ({"workloads": {"a" * 129: {}}}, "at most 128"),
        ({"inputs": [{"name": "psi\x1b[2J", "unit": "K"}]}, r"inputs\[0\].name: expected no control .*x1b"),
        ({"inputs": [{"name": "psi\u202eisp", "unit": "K"}]}, r"inputs\[0\].name: expected no .* direction"),
        ({"inputs": [{"name": "heat", "unit": "K\n"}]}, r"inputs\[0\].unit: expected no control"),
        ({"inputs": [{"name": " ", "unit": "K"}]}, r"inputs\[0\].name: expected a text that is not blank, got ' '"),
        ({"split_by": "model"}, "split_by: expected a list of at least 1 entry, got 'model'"),
        ({"split_by": []}, "split_by: expected a list of at least 1"),
        ({"test_share": 1.0}, r"test_share: expected a number above 0 and below 1, got 1.0 \(here\)"),
        ({"test_share": 0}, "test_share: expected a number above 0 and below 1, got 0"),
        ({"test_share": "a fifth"}, "test_share: expected a number above 0"),
        ({"accuracy_tolerance": -0.1}, "accuracy_tolerance: expected a number above 0, got -0.1"),
        ({"minimum_rows": 2.5}, "minimum_rows: expected a whole number above 0, got 2.5"),
        ({"training": {"method": "monoton"}},
         r"training.method: expected plain, .* or certified_guided, got 'monoton'; did you mean 'monotone'\?"),
        ({"training": {"method": ["monotone"]}}, "training.method: expected plain"),
        ({"training": {"epochs": "many"}}, "training.epochs: expected a whole number above 0, got 'many'"),
        ({"training": {"epochs": 0}}, "training.epochs: expected a whole number above 0"),
        ({"training": {"epochs": True}}, "training.epochs: expected a whole number above 0, got true"),
        ({"training": {"batch_size": 12.5}}, "training.batch_size: expected a whole number above 0"),
        ({"training": {"learning_rate": math.nan}}, "training.learning_rate: expected a number above 0, got nan"),
        ({"training": {"learning_rate": "2e-3"}}, "training.learning_rate: expected a number .*write 2.0e-3"),
        ({"training": {"verify_seconds": -1}}, "training.verify_seconds: expected a number above 0"),
        ({"training": {"hinge_margin": -1e-9}}, "training.hinge_margin: expected a number from 0"),
        ({"kind": "predicton"},
         r"kind: expected control, few_shot, prediction or .*did you mean 'prediction'\? \(here\)"),
    ],
)
def test_a_mistake_is_named_with_its_place(changes: dict[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_task({**copy.deepcopy(DATA), **changes}, "here")


@pytest.mark.parametrize("field", ["name", "target", "inputs", "workloads"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InputError, match=rf"task: the field '{field}' is missing \(here\)"):
        parse_task({key: value for key, value in DATA.items() if key != field}, "here")


@pytest.mark.parametrize("data", [None, [], "text"])
def test_what_is_no_mapping_is_no_task(data: Any) -> None:
    with pytest.raises(InputError, match=r"task: expected a mapping, got .* \(here\)"):
        parse_task(data, "here")


def test_an_unknown_workload_is_named_with_the_nearest() -> None:
    task = load_task("performance")
    for ask in (task.workload, task.features, task.telemetry_schema):
        with pytest.raises(InputError, match="workload: expected one of task 'performance', got 'rediss'; did you"):
            ask("rediss")


@pytest.mark.parametrize("name", ["pretrain_epochs", "iterations", "hinge_margin"])
def test_what_may_be_zero_may_be_zero(name: str) -> None:
    assert getattr(TrainingSettings(**{name: 0}), name) == 0


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_setting(method: str) -> None:
    assert TrainingSettings(method=method).method == method


# --- the files ---------------------------------------------------------------------------------------------


def test_the_performance_task_has_the_papers_workloads_sizes_and_specifications() -> None:
    task = load_task("performance")
    assert set(task.workloads) == {"nginx", "redis", "mysql", "training", "search"}
    assert [q.name for q in task.inputs] == ["psi_cpu_some", "psi_io_full", "psi_io_some", "disk_io_time", "cpu_time"]
    assert {name: entry.hidden for name, entry in task.workloads.items()} == {
        "nginx": (300, 300, 300), "redis": (300, 300), "mysql": (300, 300), "training": (300, 300),
        "search": (512, 512, 512)}
    assert task.target.unit == "ms"


@pytest.mark.parametrize("source", ["performance", str(ROOT / "examples" / "iocost" / "task.yaml")])
def test_every_workload_of_a_shipped_task_has_a_specification_that_fits_its_features(source: str) -> None:
    task = load_task(source)
    for name, entry in task.workloads.items():
        names = [quantity.name for quantity in task.features(name)]
        found = parse_specification(entry.specification, names, dict.fromkeys(names, (0.0, 1.0)), name)
        assert found.queries
        schema = task.telemetry_schema(name)
        assert list(schema.features) == names and list(schema.target) == [task.target.name]


def test_the_example_splits_by_ssd_model() -> None:
    task = load_task(ROOT / "examples" / "iocost" / "task.yaml")
    assert task.name == "iocost" and task.split_by == ("model",)
    assert task.target.name == "lat_imp_mean"
    assert {"root_psi_io_full", "work_psi_io_some"} <= {quantity.name for quantity in task.inputs}


def test_a_task_survives_the_way_through_yaml(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(DATA))
    assert load_task(path) == parse_task(DATA, "here")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.yaml", None, "task file must be a readable file, got No such file"),
        ("broken.yaml", b"name: [", "task file must be YAML, got .*line 1"),
        ("binary.yml", b"\xff\xfe\x00\x80", "task file must be YAML in UTF-8, got the byte 0xff"),
        ("empty.yaml", b"", r"task: expected a mapping, got nothing \(.*empty.yaml, line 1\)"),
        ("kind.yaml", b"name: demo\nkind: predicton\n", r"did you mean 'prediction'\? \(.*kind.yaml, line 2\)"),
        ("weaker.yaml", b"a:\n  tolerance: 1.0e-4\n  tolerance: 0.9",
         r"key must be given once, got 'tolerance' twice \(.*weaker.yaml, line 3\)"),
        ("object.yaml", b"!!python/object/apply:os.getcwd []", "task file must be YAML"),
    ],
)
def test_an_unusable_file_is_an_input_error(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_task(tmp_path / name)


def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    text = yaml.safe_dump({**DATA, "workloads": {"a": {"hidden": [8, "x"]}, "b": {"hiden": [3]}}}, sort_keys=False)
    at = next(number for number, line in enumerate(text.splitlines(), 1) if "- x" in line)
    path = tmp_path / "demo.yaml"
    path.write_text(text)
    for read, where in ((lambda: load_task(path), str(path)), (lambda: read_task(text), "task")):
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value) == ("workloads.a.hidden[1]: expected a whole number above 0, got 'x' "
                                     f"({where}, line {at}), and 1 more")


def test_an_unknown_task_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"got 'performence'; did you mean 'performance'\?"):
        load_task("performence")
