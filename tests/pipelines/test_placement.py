"""values.yaml: what it refuses, and what it makes of the compiled pipeline."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2
from typer.testing import CliRunner

from feature_store.errors import InputError
from feature_store.written.model import parse_written, read_written
from pipelines.command_line import app
from pipelines.compiled import compile_train
from pipelines.placement import KEY_FOLDER, SECRET_FOLDER
from pipelines.values_file import REACH_SERVICES, REPEATABLE, SIGNS, ValuesFile, memory_bytes
from tests.deploy.dockerfile import instructions
from tests.e2e.tiny import ROOT

VALUES = ROOT / "deploy/values.yaml"
MORE = """
artifacts: s3://assay/pipelines
volumes: [{claim: telemetry, mount_path: /data}]
every_step:
  tolerations: [{key: dedicated, value: training, effect: NoSchedule}]
  node_selector: {pool: small}
steps:
  finetune: {node_selector: {pool: large}, retries: 0}
"""
ONE = "secrets: [{secret: services, variables: {PGPASSWORD: password}}]"


def read(text: str) -> ValuesFile:
    return parse_written(ValuesFile, text, "values", "values.yaml")


def compiled(folder: Path, **options: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The text, the pipeline, and by step what Kubernetes is to do."""
    text = compile_train(folder / "train.yaml", **options).read_text()
    pipeline, *platforms = yaml.safe_load_all(text)
    placed = platforms[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platforms else {}
    return text, pipeline, {name.removeprefix("exec-"): fields for name, fields in placed.items()}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return compiled(tmp_path_factory.mktemp("shipped"), values=read_written(ValuesFile, VALUES, "values"))


def containers(pipeline: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("exec-"): one["container"]
            for name, one in pipeline["deploymentSpec"]["executors"].items()}


def retries(pipeline: dict[str, Any]) -> dict[str, int]:
    tasks = [task for component in (pipeline["root"], *pipeline["components"].values())
             for task in component.get("dag", {}).get("tasks", {}).values() if "parameterIterator" not in task]
    return {task["taskInfo"]["name"]: task.get("retryPolicy", {}).get("maxRetryCount", 0) for task in tasks}


def test_every_step_of_the_pipeline_is_known(shipped: Any) -> None:
    _, pipeline, placed = shipped
    assert set(containers(pipeline)) == set(placed) == set(REPEATABLE)


def test_the_signing_key_is_in_one_step_alone(shipped: Any) -> None:
    text, pipeline, placed = shipped
    assert text.count("assay-signing-key") == 2, "the Secret's name twice in the one step, as kfp writes it"
    (secret,) = placed[SIGNS]["secretAsVolume"]
    assert (secret["secretName"], secret["mountPath"]) == ("assay-signing-key", SECRET_FOLDER)
    assert [mount["mountPath"] for mount in placed[SIGNS]["emptyDirMounts"]] == [KEY_FOLDER]
    for name in REPEATABLE.keys() - {SIGNS}:
        assert not {"secretAsVolume", "secretAsEnv", "emptyDirMounts"} & placed[name].keys()
        assert SECRET_FOLDER not in str(containers(pipeline)[name]["env"])


def test_every_step_shares_the_state_and_none_runs_as_root(shipped: Any) -> None:
    _, pipeline, placed = shipped
    for name, fields in placed.items():
        assert [(mount["constant"], mount["mountPath"]) for mount in fields["pvcMount"]] == [
            ("assay-state", "/var/lib/assay")]
        assert fields["securityContext"] == {"runAsUser": "10001", "runAsGroup": "10001", "runAsNonRoot": True}
        environment = {entry["name"]: entry["value"] for entry in containers(pipeline)[name]["env"]}
        assert environment["ASSAY_HOME"] == "/var/lib/assay"
        assert environment["ASSAY_CONFIG"] == "/etc/assay/mlflow.yaml"


def test_every_step_has_requests_limits_and_a_timeout_and_all_but_one_are_retried(shipped: Any) -> None:
    _, pipeline, placed = shipped
    for name, container in containers(pipeline).items():
        assert {f"resource{which}{end}" for which in ("Cpu", "Memory") for end in ("Request", "Limit")} <= set(
            container["resources"])
        assert int(placed[name]["activeDeadlineSeconds"]) >= 7200
    assert containers(pipeline)["finetune"]["resources"]["resourceMemoryRequest"] == "2Gi", "of every step"
    assert containers(pipeline)["finetune"]["resources"]["resourceMemoryLimit"] == "8Gi", "its own"
    assert retries(pipeline) == {**dict.fromkeys(REPEATABLE, 2), SIGNS: 0}


def test_what_is_written_is_what_kubeflow_reads(shipped: Any) -> None:
    """Against the messages that its backend parses; an unknown field would raise."""
    for fields in shipped[2].values():
        json_format.ParseDict(fields, kubernetes_executor_config_pb2.KubernetesExecutorConfig())


def test_what_may_be_left_out_is_obeyed_where_it_is_given(tmp_path: Path) -> None:
    document = yaml.safe_load(VALUES.read_text()) | yaml.safe_load(MORE)
    _, pipeline, placed = compiled(tmp_path, values=read(yaml.safe_dump(document)))
    assert pipeline["defaultPipelineRoot"] == "s3://assay/pipelines"
    assert [mount["mountPath"] for mount in placed["ingest"]["pvcMount"]] == ["/var/lib/assay", "/data"]
    assert placed["ingest"]["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}]
    assert placed["ingest"]["nodeSelector"] == {"labels": {"pool": "small"}}
    assert placed["finetune"]["nodeSelector"] == {"labels": {"pool": "large"}}
    assert retries(pipeline) == dict.fromkeys(REPEATABLE, 0)


def test_the_image_of_the_command_overrules_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for options, image in (((), "registry.example/assay:0.1.0"), (("--image", "mine:2"), "mine:2")):
        done = CliRunner().invoke(app, ["compile", "out.yaml", "--values", str(VALUES), *options])
        assert done.exit_code == 0, done.output
        pipeline = next(yaml.safe_load_all(Path("out.yaml").read_text()))
        assert {container["image"] for container in containers(pipeline).values()} == {image}


def test_a_schedule_of_this_machine_has_no_values() -> None:
    done = CliRunner().invoke(app, ["schedule", "create", "--cron", "0 2 * * *", "--local", "--values", str(VALUES)])
    assert done.exit_code == 2 and "values: expected a cluster, which they are about, got --local" in done.stderr


def test_with_an_image_alone_nothing_else_changes(tmp_path: Path) -> None:
    plain, changed = (compiled(tmp_path, image=image)[0] for image in (None, "mine:2"))
    lines = list(zip(plain.splitlines(), changed.splitlines(), strict=True))
    different = [new for old, new in lines if old != new]
    assert {line.strip() for line in different} == {"image: mine:2"} and len(different) == len(REPEATABLE)


def variables(fields: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Of a step: Secret and key by the variable."""
    return {pair["envVar"]: (secret["secretName"], pair["secretKey"])
            for secret in fields.get("secretAsEnv", ()) for pair in secret["keyToEnv"]}


def test_steps_that_reach_services_get_variables_from_secrets_and_no_other_does(tmp_path: Path) -> None:
    document = yaml.safe_load(VALUES.read_text()) | yaml.safe_load("""
secrets:
  - {secret: store, variables: {AWS_ACCESS_KEY_ID: id, AWS_SECRET_ACCESS_KEY: key}}
  - {secret: twice, variables: {PGPASSWORD: password, MLFLOW_TRACKING_PASSWORD: password}, steps: [gate, register]}
""")
    _, _, placed = compiled(tmp_path, values=read(yaml.safe_dump(document)))
    store = {"AWS_ACCESS_KEY_ID": ("store", "id"), "AWS_SECRET_ACCESS_KEY": ("store", "key")}
    both = store | dict.fromkeys(["PGPASSWORD", "MLFLOW_TRACKING_PASSWORD"], ("twice", "password"))
    expected: dict[str, Any] = {name: {} for name in REPEATABLE}
    expected |= dict.fromkeys(REACH_SERVICES, store) | dict.fromkeys(["gate", "register"], both)
    assert {name: variables(fields) for name, fields in placed.items()} == expected
    for fields in placed.values():
        json_format.ParseDict(fields, kubernetes_executor_config_pb2.KubernetesExecutorConfig())


def test_what_the_shipped_file_has_as_a_comment_holds(tmp_path: Path) -> None:
    text = VALUES.read_text()
    at = text.index("# secrets:")
    commented = text[at:text.index("\n\n", at)]
    values = read(text.replace(commented, "\n".join(line.removeprefix("# ") for line in commented.splitlines())))
    (entry,) = values.secrets
    assert set(entry.variables) >= {"PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD"}
    assert set(variables(compiled(tmp_path, values=values)[2]["ingest"])) == set(entry.variables)


def test_no_secret_takes_the_place_of_what_is_set_here_or_by_the_image(shipped: Any) -> None:
    of_image = next(words for name, words in instructions(ROOT / "deploy/Dockerfile") if name == "ENV")
    names = {word.partition("=")[0] for word in of_image.split()}
    names |= {entry["name"] for container in containers(shipped[1]).values() for entry in container["env"]}
    assert {"ASSAY_HOME", "ASSAY_CONFIG", "ASSAY_SIGNING_KEY_FILE", "HOME"} <= names
    for name in names:
        with pytest.raises(InputError, match=f"expected a variable that Assay does not set itself, got '{name}'"):
            read(VALUES.read_text() + ONE.replace("PGPASSWORD", name))


@pytest.mark.parametrize(("old", "new", "message"), [
    ("secret: services", "secret: assay-signing-key", "secrets[0].secret: expected another Secret than that of the"),
    ("PGPASSWORD", "PG-PASSWORD", "secrets[0].variables.PG-PASSWORD: expected letters, digits and _, no"),
    ("}}]", "}, steps: [regster]}]", "secrets[0].steps[0]: unknown step; did you mean 'register'?"),
    ("}}]", "}}, {secret: more, variables: {PGPASSWORD: other}, steps: [gate]}]",
     "secrets[1].variables.PGPASSWORD: expected one Secret to give it to gate, got two"),
    ("password}", "''}", "secrets[0].variables.PGPASSWORD: expected a text that is not empty"),
    (", variables: {PGPASSWORD: password}", "", "'variables' is missing"),
])
def test_a_secret_that_does_not_fit_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read(VALUES.read_text() + ONE.replace(old, new, 1))
    assert message in str(raised.value) and "values.yaml" in str(raised.value)


@pytest.mark.parametrize(("old", "new", "message"), [
    ("state:", "stat:", "stat: unknown field; did you mean 'state'?"),
    ("finetune:", "fintune:", "steps.fintune: unknown step; did you mean 'finetune'?"),
    ("verify: {", "register: {retries: 1, ", "steps.register.retries: expected none, for register writes"),
    ("cpu: 500m", "cpu: 500k", "every_step.requests.cpu: expected cores"),
    ("memory: 2Gi", "memory: 2 GB", "every_step.requests.memory: expected bytes"),
    ("cpu: 500m", 'cpu: "3"', "every_step: expected a cpu request up to the limit of 2, got 3"),
    ("{requests: {cpu: \"2\"}, limits: {cpu: \"4\"", "{requests: {cpu: \"5\"}, limits: {cpu: \"4\"",
     "steps.pretrain: expected a cpu request up to the limit of 4, got 5"),
    ("memory: 2Gi", "memory: 5Gi", "every_step: expected a memory request up to the limit of 4Gi, got 5Gi"),
    ("/var/lib/assay", "state", "state.mount_path: expected an absolute path, got 'state'"),
    ("timeout_s: 7200", "tolerations: [{effect: NoSchedule}]", "every_step.tolerations[0].key: expected a key, or"),
    ("timeout_s: 7200", "tolerations: [{key: a, operator: Exists, value: b}]",
     "every_step.tolerations[0].value: expected none beside"),
    ("id: 10001", "id: 0", "user.id: expected a whole number above 0, got 0"),
    ("configuration: assay-configuration\n", "", "the field 'configuration' is missing"),
])
def test_what_does_not_fit_is_refused_with_field_and_line(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read(VALUES.read_text().replace(old, new, 1))
    assert message in str(raised.value) and "values.yaml" in str(raised.value)


@pytest.mark.parametrize(("text", "expected"), [
    ("1", 1), ("2K", 2000), ("2Ki", 2048), ("3M", 3_000_000), ("1Gi", 2**30), ("1Ei", 2**60)])
def test_memory_is_counted_in_bytes(text: str, expected: int) -> None:
    assert memory_bytes(text) == expected
