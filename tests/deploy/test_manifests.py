"""The manifests fit Kubernetes and what is asked of them, and the check finds what it says it finds."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import HERE, PAGE, manifests, problems
from pipelines.placement import CONFIGURATION_FOLDER, KEY_FOLDER, POD_LABEL, SECRET_FOLDER

PIPELINE, CONTROLLER = HERE / "kustomize/pipeline", HERE / "kustomize/controller"


def test_the_manifests_hold() -> None:
    assert problems() == []


def test_all_of_them_are_looked_at() -> None:
    kinds = [one.content["kind"] for one in manifests()]
    assert {"StatefulSet", "Deployment", "CronJob", "NetworkPolicy", "Role", "PodMonitor", "Job"} <= set(kinds)
    assert kinds.count("Kustomization") == 2


@pytest.mark.parametrize(("file", "old", "new", "message"), [
    ("mlflow.yaml", "replicas: 1", "replica: 1", "expected what Kubernetes 1.33 takes, got Additional properties"),
    ("mlflow.yaml", "replicas: 1", "replicas: one", "expected what Kubernetes 1.37 takes"),
    ("mlflow.yaml", "kind: Service\n", "kind: Servise\n", "expected a kind of Kubernetes 1.33, got v1 Servise"),
    ("mlflow.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "expected runAsNonRoot: true"),
    ("mlflow.yaml", "limits: {cpu: \"1\", memory: 2Gi}", "limits: {cpu: \"1\"}", "expected limits of cpu and memory"),
    ("mlflow.yaml", "allowPrivilegeEscalation: false", "privileged: false", "expected allowPrivilegeEscalation"),
    ("mlflow.yaml", "automountServiceAccountToken: false", "hostNetwork: false", "automountServiceAccountToken to be"),
    ("mlflow.yaml", "claimName: mlflow-artifacts", "claimName: other", "expected claim other to be made here"),
    ("mlflow.yaml", "{name: mlflow-database, key", "{name: mlflow-db, key", "expected mlflow-db to be made"),
    ("mlflow.yaml", "{name: HOME, value: /tmp}", "{name: DB_PASSWORD, value: x}", "expected DB_PASSWORD to come from"),
    ("mlflow.yaml", "kind: Service\n", "kind: Secret\n", "expected no Secret"),
    ("postgresql.yaml", "postgres:17.6-bookworm", "postgres:latest", "expected an image with a version"),
    ("state.yaml", "ttlSecondsAfterFinished: 600", "completions: 1", "Job prepare-state: expected ttlSeconds"),
    ("monitor.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "CronJob assay-monitor: expected runAsNonRoot: true"),
    ("kustomization.yaml", "  - network.yaml\n", "", "expected network.yaml to be listed"),
    ("kustomization.yaml", "  - network.yaml\n", "  - net.yaml\n", "expected net.yaml to be there"),
])
def test_a_mistake_is_found(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    folder = shutil.copytree(PIPELINE, tmp_path / "pipeline")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    assert any(message in problem for problem in problems(folder)), problems(folder)


def test_what_values_yaml_names_is_made_here_or_by_a_command_of_the_page() -> None:
    values, page = yaml.safe_load((HERE / "values.yaml").read_text()), PAGE.read_text()
    made = {(one.content["kind"], one.content["metadata"]["name"]) for one in manifests(PIPELINE)
            if "metadata" in one.content}
    assert ("PersistentVolumeClaim", values["state"]["claim"]) in made
    assert ("ServiceAccount", values["service_account"]) in made
    assert f"create configmap {values['configuration']} " in page
    key = values["signing_key"]
    assert f"create secret generic {key['secret']} --from-file={key['file']}\n" in page


def test_the_steps_service_account_reads_no_secret_but_the_object_store_s() -> None:
    (role,) = (one.content for one in manifests(PIPELINE) if one.content["kind"] == "Role")
    secrets = [rule for rule in role["rules"] if {"secrets", "*"} & set(rule["resources"])]
    assert [rule["resourceNames"] for rule in secrets] == [["mlpipeline-minio-artifact"]]
    pods = [rule for rule in role["rules"] if {"pods", "*"} & set(rule["resources"])]
    assert not [rule for rule in pods if {"create", "*"} & set(rule["verbs"])], "who creates pods can mount any Secret"


def test_the_database_hears_whoever_reads_or_writes_a_ledger_in_it() -> None:
    (policy,) = (one.content["spec"] for one in manifests(PIPELINE)
                 if one.content["kind"] == "NetworkPolicy" and one.content["metadata"]["name"] == "postgresql")
    heard = [one["podSelector"]["matchLabels"].items() for rule in policy["ingress"] for one in rule["from"]]
    templates = [one.content["spec"]["template"]["metadata"]["labels"] for one in manifests()
                 if one.content["kind"] == "Deployment"]
    assert len(templates) == 3
    for labels in [dict([POD_LABEL]), *templates]:  # of the steps, MLflow, the operator, a controller
        assert any(labels.items() >= selected for selected in heard), labels
    assert not any({"app": "other"}.items() >= selected for selected in heard)


def pods(folder: Path = PIPELINE) -> dict[str, Any]:
    """The pod's spec of each manifest that starts some, by its name."""
    found = {}
    for one in manifests(folder):
        spec = one.content.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            found[one.content["metadata"]["name"]] = template["spec"]
    return found


def test_only_what_people_decide_with_has_the_signing_key_and_it_sleeps_until_they_ask() -> None:
    key = yaml.safe_load((HERE / "values.yaml").read_text())["signing_key"]
    sees = {name for name, pod in pods().items() if key["secret"] in str(pod)}
    assert sees == {"assay-operator", "assay-review"}
    kinds = {one.content["metadata"]["name"]: one.content for one in manifests(PIPELINE) if "metadata" in one.content}
    assert kinds["assay-operator"]["spec"]["replicas"] == 0 and kinds["assay-review"]["spec"]["suspend"] is True
    for name in sees:
        (container,) = pods()[name]["containers"]
        assert container["command"][:2] == ["sh", "-c"]
        copies, then = container["command"][2].split(" && exec ")
        assert copies == f"install -m 600 {SECRET_FOLDER}/{key['file']} {KEY_FOLDER}/{key['file']}"
        assert then in ("sleep infinity", "assay promote --pending --json")
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {SECRET_FOLDER, KEY_FOLDER, CONFIGURATION_FOLDER, "/var/lib/assay"} <= mounted
        # the ledger's entries name a user, and uid 10001 has no name in the image
        assert "USER" in {entry["name"] for entry in container["env"]}


def test_variables_come_from_the_secret_that_the_page_makes_where_there_is_one() -> None:
    taken = {name: [one["secretRef"] for container in pod["containers"] for one in container.get("envFrom", ())]
             for name, pod in pods().items()}
    services = [{"name": "assay-services", "optional": True}]
    assert {name for name, found in taken.items() if found == services} == {
        "assay-monitor", "assay-operator", "assay-review"}
    assert "create secret generic assay-services " in PAGE.read_text()


@pytest.mark.parametrize("folder", [PIPELINE, CONTROLLER], ids=lambda folder: folder.name)
def test_a_registry_is_changed_in_one_line(folder: Path) -> None:
    """`newName`: `name` is what images are found by."""
    (kustomization,) = (one.content for one in manifests(folder) if one.content["kind"] == "Kustomization")
    (image,) = kustomization["images"]
    assert image.keys() == {"name", "newName", "newTag"}
    used = {container["image"] for pod in pods(folder).values() for container in pod["containers"]}
    assert {name for name in used if name.startswith("registry.example/")} == {image["name"]}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", [PIPELINE, CONTROLLER], ids=lambda folder: folder.name)
def test_another_registry_takes_the_place_of_the_one_of_the_files(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / folder.name)
    text = (copy / "kustomization.yaml").read_text()
    (copy / "kustomization.yaml").write_text(text.replace("newName: registry.example/", "newName: mine.example:5000/"))
    done = subprocess.run(["kubectl", "kustomize", copy], capture_output=True, text=True, check=True)
    assert "registry.example" not in done.stdout and "image: mine.example:5000/assay" in done.stdout


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", [PIPELINE, CONTROLLER], ids=lambda folder: folder.name)
def test_kustomize_gives_every_image_of_ours_its_tag(folder: Path) -> None:
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True)
    documents = list(yaml.safe_load_all(done.stdout))
    assert len(documents) == len([one for one in manifests(folder) if one.content["kind"] != "Kustomization"])
    assert "registry.example/assay" in done.stdout
    assert not [line for line in done.stdout.splitlines() if "image: registry.example" in line and "0.1.0" not in line]
