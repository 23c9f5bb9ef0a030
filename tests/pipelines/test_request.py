"""What `assay run` is told, as plain values: read once, checked before any work."""

import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from feature_store.digests import content_digest
from feature_store.errors import InputError
from feature_store.recorded import DEFAULT_TELEMETRY
from pipelines.request import ROOT, TrainRequest, code_version, make_request
from tests.e2e import tiny

COLUMNS = {"latency_ms": {"column": "rt"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds a task and telemetry."""
    monkeypatch.chdir(tmp_path)
    tiny.write_yaml(tiny.task(), tmp_path / "tiny.yaml")
    tiny.telemetry(rows=5).to_parquet(tmp_path / "samples.parquet", index=False)
    (tmp_path / "empty").mkdir()
    return tmp_path


def request(task: str = "tiny.yaml", telemetry: str = "samples.parquet", mapping: Path | None = None,
            workloads: tuple[str, ...] = (), method: str | None = None) -> TrainRequest:
    return make_request(task, telemetry, mapping, workloads, 0, "run", method)


def test_the_command_that_reproduces_a_run_is_the_one_that_was_given(project: Path) -> None:
    assert request().command == "assay run --task tiny.yaml --telemetry samples.parquet --seed 0"
    tiny.write_yaml({"workload": {"constant": "redis"}, "columns": COLUMNS, "task": "tiny.yaml"},
                    project / "a mapping.yaml")
    made = make_request("performance", "samples.parquet", Path("a mapping.yaml"), ("redis",), 7, "run", "certified",
                        config=Path("mine.yaml"))
    assert made.command == ("assay run --telemetry samples.parquet --mapping 'a mapping.yaml' --workload redis "
                            "--seed 7 --method certified --config mine.yaml")
    assert made.arguments()["command"] == made.command


def test_the_default_telemetry_is_named_from_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = make_request("performance", str(DEFAULT_TELEMETRY), None, (), 0, "run")
    assert made.command == "assay run --task performance --telemetry data/base/samples.parquet --seed 0"


def with_specification(project: Path, specification: dict[str, Any]) -> None:
    data = tiny.task()
    data["workloads"]["redis"]["specification"] = specification
    tiny.write_yaml(data, project / "tiny.yaml")


def test_a_request_carries_task_data_and_code_by_content(project: Path) -> None:
    made = request()
    assert made.workloads == ("nginx", "redis") and made.task.name == "tiny"
    assert yaml.safe_load(made.task_yaml) == tiny.task()
    assert made.data_version == content_digest(project / "samples.parquet")
    assert made.code_version == code_version() and len(made.code_version) == 16


def test_a_relative_path_means_the_users_folder_in_every_step(project: Path) -> None:
    """The steps run in folders of their own."""
    assert request().telemetry == str(project / "samples.parquet")


def test_a_workload_named_twice_is_trained_once(project: Path) -> None:
    assert request(workloads=("redis", "redis")).workloads == ("redis",)


def test_telemetry_of_a_server_is_new_each_time() -> None:
    """Neither the step cache nor `--scheduled` may take what the server said before for what it says now."""
    first, second = (make_request("performance", "http://127.0.0.1:1", None, (), 0, "run") for _ in range(2))
    assert first.data_version.startswith("live-") and first.data_version != second.data_version
    assert first.telemetry == "http://127.0.0.1:1"


def test_the_password_of_a_server_reaches_who_reads_it_and_no_evidence() -> None:
    made = make_request("performance", "http://me:s3cret@127.0.0.1:1", None, (), 0, "run")
    assert made.telemetry == "http://me:s3cret@127.0.0.1:1"
    assert made.command == "assay run --task performance --telemetry http://127.0.0.1:1 --seed 0"


def test_a_method_overrules_the_task(project: Path) -> None:
    made = request(method="plain")
    assert made.task.training.method == yaml.safe_load(made.task_yaml)["training"]["method"] == "plain"


def test_a_mapping_brings_its_task_along(project: Path) -> None:
    """The task may be a path beside the mapping: it travels inside."""
    mapping = {"workload": {"constant": "redis"}, "columns": COLUMNS, "task": "own.yaml"}
    folder = project / "elsewhere"
    folder.mkdir()
    tiny.write_yaml(tiny.task(("redis",)), folder / "own.yaml")
    made = request("performance", mapping=tiny.write_yaml(mapping, folder / "mapping.yaml"))
    assert made.task.name == "tiny" and made.workloads == ("redis",)
    assert yaml.safe_load(made.mapping_yaml)["task"]["name"] == "tiny"


WRONG = "name: tiny\ntarget: latency_ms\ninputs: [psi_cpu_some]\nworkloads:\n  redis: {hidden: [0]}\n"
MAPPING = "workload: {constant: redis}\ncolumns: {latency_ms: {column: rt}}\ntask:"


@pytest.mark.parametrize(("mapping", "place"), [
    ("", "tiny.yaml, line 5"),
    (f"{MAPPING} tiny.yaml\n", "tiny.yaml, line 5"),
    (f"{MAPPING}\n" + textwrap.indent(WRONG, "  "), "mapping.yaml: task, line 8"),
])
def test_a_mistake_in_a_task_is_named_with_its_file_and_line(project: Path, mapping: str, place: str) -> None:
    (project / "tiny.yaml").write_text(WRONG)
    (project / "mapping.yaml").write_text(mapping)
    with pytest.raises(InputError) as caught:
        request(mapping=Path("mapping.yaml") if mapping else None)
    assert str(caught.value) == f"workloads.redis.hidden[0]: expected a whole number above 0, got 0 ({place})"


def test_a_mistake_in_the_task_of_a_mapping_of_measurements_is_named_with_its_line(project: Path) -> None:
    (project / "mapping.yaml").write_text(
        "workload: {column: app}\nconfiguration: {nodes: {column: nodes}}\ntarget: {column: seconds}\n"
        "task:\n  demand: {nodes: decreasing}\n  few_shot:\n    runs: 0\n")
    (project / "runs.csv").write_text("app,nodes,seconds\na,1,2.0\nb,1,3.0\n")
    with pytest.raises(InputError) as caught:
        request("performance", "runs.csv", Path("mapping.yaml"))
    assert str(caught.value) == ("few_shot.runs: expected a whole number above 0, got 0 "
                                 "(mapping.yaml: task, line 7)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "performence"}, "performence"),
        ({"task": "no.yaml"}, "task file must be a readable file"),
        ({"telemetry": "no.parquet"}, "telemetry must be an existing file, a folder"),
        ({"telemetry": "empty"}, "expected a folder with files in .parquet or .pq, got none"),
        ({"mapping": Path("no.yaml")}, "mapping must be an existing file"),
        ({"workloads": ("rediss",)}, "workload: expected one of task 'tiny', got 'rediss'; did you mean 'redis'?"),
        ({"method": "monotnoe"}, r"training.method: expected plain, .*did you mean 'monotone'\? \(--method\)"),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_cannot_be_used_is_refused_before_any_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        request(**options)


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ({"properties": [{"monotone": {"features": ["psi_cpu_sum"]}}]},
         "got 'psi_cpu_sum'.*did you mean 'psi_cpu_some'"),
        ({"properties": [{"monotone": {"features": ["psi_cpu_some"], "output": "latency"}}]},
         "got 'latency'; did you mean 'latency_ms'"),
        ({"box": {"psi_cpu_some": [0.9, 0.1]}, "properties": [{"monotone": {"features": ["psi_cpu_some"]}}]},
         r"box.psi_cpu_some: expected lower <= upper, got \[0.9, 0.1\] \(tiny.yaml, workload redis, line \d+\)"),
        ({"box": {"psi_cpu_some": ["low", "high"]}, "properties": [{"monotone": {"features": ["psi_cpu_some"]}}]},
         "low"),
        ({"properties": []}, "properties: expected a list of at least 1 entry"),
        ({"propertys": []}, "propertys: unknown field; did you mean 'properties'"),
    ],
)
def test_a_specification_that_no_data_could_fit_is_refused_before_any_work(
    project: Path, specification: dict[str, Any], message: str
) -> None:
    with_specification(project, specification)
    with pytest.raises(InputError, match=message):
        request()
    assert request(workloads=("nginx",)).workloads == ("nginx",)  # the others can be trained


def test_a_specification_may_name_the_target(project: Path) -> None:
    with_specification(project, {"properties": [{"monotone": {"features": ["psi_cpu_some"], "output": "latency_ms"}}]})
    assert request().workloads == ("nginx", "redis")


def test_a_mistake_in_a_specification_is_named_with_the_line_of_the_task(project: Path) -> None:
    text = WRONG.replace("hidden: [0]", "specification: {properties: [{monotone: {features: [psi]}}]}")
    (project / "tiny.yaml").write_text(text)
    for method in (None, "plain"):
        with pytest.raises(InputError, match=r"^properties\[0\].monotone.features\[0\]: expected an input of the "
                                             r"model, got 'psi'; .* \(tiny.yaml, workload redis, line 5\)$"):
            request(method=method)


def test_the_code_version_changes_with_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pipelines import request as module

    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.py").write_text("1")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    before = code_version()
    (tmp_path / "models" / "a.py").write_text("2")
    after = code_version()
    (tmp_path / "models" / "notes.txt").write_text("3")
    assert before != after == code_version()


def test_a_longer_budget_is_one_option_that_the_command_repeats(project: Path) -> None:
    made = make_request("autoscaling", None, None, ("nginx",), 0, "run", budget=4.0)
    assert made.task.training.budget == 4.0 and "budget: 4.0" in made.task_yaml
    assert made.command.endswith("--workload nginx --seed 0 --budget 4")
    assert Path(made.telemetry) == ROOT / "data" / "autoscaling" / "load.parquet"


def test_a_kind_without_a_budget_says_so(project: Path) -> None:
    with pytest.raises(InputError, match=r"training.budget: unknown field"):
        make_request("tiny.yaml", "samples.parquet", None, (), 0, "run", budget=2.0)


def test_the_code_version_counts_the_environment_that_a_task_names(project: Path) -> None:
    shutil.copy(ROOT / "tests" / "environments" / "backlog.yaml", project / "backlog.yaml")
    own = make_request("backlog.yaml", "samples.parquet", None, (), 0, "run").code_version
    files = [ROOT / "tests" / "environments" / name for name in ("backlog.py", "backlog_acting.py")]
    assert own == code_version(files) != code_version()


def test_a_mapping_needs_the_telemetry_that_it_maps(project: Path) -> None:
    tiny.write_yaml({"workload": {"constant": "redis"}, "columns": COLUMNS}, project / "mapping.yaml")
    with pytest.raises(InputError, match=r"telemetry: expected the file or server that mapping\.yaml maps"):
        make_request("tiny.yaml", None, Path("mapping.yaml"), (), 0, "run")
