"""The compiled pipeline is the one in the golden file, and what it must be whatever the file says."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from components.definitions import IMAGE
from tests.golden.regenerate import PIPELINE, compiled_pipeline

UNCACHED = {"verify", "export", "gate", "register", "pages", "report"}
STEPS = {"ingest", "validate", "featurize", "audit", "pretrain", "finetune", *UNCACHED}
FAN_OUT = {"finetune", "verify", "export"}
READ_APART = {"ingest", "validate", "featurize"}


@pytest.fixture(scope="module")
def compiled() -> str:
    return compiled_pipeline()


@pytest.fixture(scope="module")
def pipeline(compiled: str) -> dict[str, Any]:
    document: dict[str, Any] = next(yaml.safe_load_all(compiled))
    return document


def tasks(pipeline: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for component in (pipeline["root"], *pipeline["components"].values()):
        yield from component.get("dag", {}).get("tasks", {}).items()


def loops(pipeline: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, task) for name, task in tasks(pipeline) if "parameterIterator" in task]


def test_the_pipeline_compiles_to_the_golden_file(compiled: str) -> None:
    if IMAGE != "assay:0.1.0":
        pytest.skip("ASSAY_IMAGE names another image than the golden file")
    assert compiled == PIPELINE.read_text(), "run `make golden` if the change is meant, and read the difference"


def test_caching_is_off_exactly_where_a_result_must_not_be_older_than_the_run(pipeline: dict[str, Any]) -> None:
    cached = {task["taskInfo"]["name"] for _, task in tasks(pipeline)
              if task.get("cachingOptions", {}).get("enableCache")}
    assert cached == STEPS - UNCACHED


def test_there_are_three_flat_loops_over_shards_two_at_a_time(pipeline: dict[str, Any]) -> None:
    found = {}
    for _, loop in loops(pipeline):
        assert loop["iteratorPolicy"] == {"parallelismLimit": 2}
        inside = frozenset(pipeline["components"][loop["componentRef"]["name"]]["dag"]["tasks"])
        found[inside] = loop["parameterIterator"]["items"]["inputParameter"].removeprefix("pipelinechannel--")
    assert found == {frozenset(READ_APART): "readers", frozenset(FAN_OUT): "shards", frozenset({"pages"}): "shards"}


def test_every_step_runs_in_the_one_image_and_installs_nothing(pipeline: dict[str, Any]) -> None:
    executors = pipeline["deploymentSpec"]["executors"]
    assert {name.removeprefix("exec-") for name in executors} == STEPS
    for executor in executors.values():
        container = executor["container"]
        assert container["image"] == IMAGE
        assert "pip" not in " ".join(container["command"])


def test_the_steps_come_in_the_order_of_the_design(pipeline: dict[str, Any]) -> None:
    depends = {name: set(task.get("dependentTasks", ())) for name, task in tasks(pipeline)}
    names = {name: set(pipeline["components"][loop["componentRef"]["name"]]["dag"]["tasks"])
             for name, loop in loops(pipeline)}
    (readers,) = (name for name, inside in names.items() if inside == READ_APART)
    (loop,) = (name for name, inside in names.items() if inside == FAN_OUT)
    (pages,) = (name for name, inside in names.items() if inside == {"pages"})
    assert depends["validate"] == {"ingest"} and depends["featurize"] == {"validate"}
    assert depends["audit"] == {readers} and depends["pretrain"] == {"audit"}
    assert {"audit", "pretrain"} <= depends[loop]
    assert "finetune" in depends["verify"] and "verify" in depends["export"]
    assert loop in depends["gate"] and "gate" in depends["register"] and "register" in depends["report"]
    assert "register" in depends[pages] and pages in depends["report"]


def test_cached_steps_are_told_apart_by_code_and_ingestion_by_data_too(pipeline: dict[str, Any]) -> None:
    inputs = {name: set(task.get("inputs", {}).get("parameters", ())) for name, task in tasks(pipeline)}
    for step in STEPS - UNCACHED:
        assert "code_version" in inputs[step], step
    assert "data_version" in inputs["ingest"]


def test_the_parameters_are_those_of_a_request(pipeline: dict[str, Any]) -> None:
    parameters = pipeline["root"]["inputDefinitions"]["parameters"]
    assert set(parameters) == {"task_yaml", "workloads", "shards", "readers", "telemetry", "data_version",
                               "code_version", "mapping_yaml", "seed", "run_name", "command", "scheduled"}
    required = {name for name, definition in parameters.items() if "defaultValue" not in definition}
    assert required == {"task_yaml", "workloads", "shards", "readers", "telemetry", "data_version", "code_version"}
