"""The Kubernetes actuator as a controller's file names it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import InputError
from pipelines.controller_command_line import run
from serving.actuators.actuator import ActuatorError
from serving.actuators.actuators import make_actuator
from serving.actuators.kubernetes import KubernetesDeployment, KubernetesTarget
from serving.control.controller_file import ControllerFile, read_controller_file
from serving.control.start import release
from tests.serving.actuators.kubernetes_server import DEPLOYMENT, new_cluster, new_pod, serve
from tests.serving.actuators.kubernetes_target import actuator
from tests.serving.control.world import contract


def written(folder: Path, kubernetes: str) -> ControllerFile:
    path = folder / "controller.yaml"
    path.write_text(f"prometheus: http://127.0.0.1:9090\nsignals: {{}}\n{kubernetes}")
    return read_controller_file(path)


def reached(folder: Path, url: str, more: str) -> ControllerFile:
    """Of the tests' Deployment. more: of its part, then of the file."""
    (folder / "config").write_text(
        "{apiVersion: v1, kind: Config, current-context: c, "
        f"clusters: [{{name: k, cluster: {{server: '{url}'}}}}], "
        "users: [{name: u, user: {token: secret}}], contexts: [{name: c, context: {cluster: k, user: u}}]}")
    return written(folder, "kubernetes: {namespace: shop, deployment: web, container: web, "
                           f"kubeconfig: {folder / 'config'}, {more}")


def test_a_file_names_a_deployment_and_how_it_is_reached(tmp_path: Path) -> None:
    with serve(new_cluster(2)) as url:
        found = reached(tmp_path, url, "lease_s: 30, controls: [target_replicas]}\n"
                                       "shield: {hold: [target_cpu_limit_cores, target_memory_limit_mib]}")
        target = make_actuator("kubernetes", contract(100.0), found.actuators, found.hold)
        assert target.name == "kubernetes shop/web" and target.present()["replicas"] == 2.0


def test_what_is_held_is_not_set_and_may_be_somebody_elses(tmp_path: Path) -> None:
    cluster = new_cluster(2, {key: {"cpu": "1", "memory": "500M"} for key in ("limits", "requests")})
    cluster.store("horizontalpodautoscalers", {"metadata": {"name": "hpa"}, "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"}}})
    with serve(cluster) as url:
        found = reached(tmp_path, url, "lease_s: 30}\nshield: {hold: [target_replicas, target_memory_limit_mib]}")
        target = make_actuator("kubernetes", contract(100.0), found.actuators, found.hold)
        assert target.acquire("me") == ""
        present = target.present()
        target.apply({"target_replicas": present["replicas"], "target_cpu_limit_cores": 2.0,
                      "target_memory_limit_mib": present["memory_limit_mib"]})
        assert [cluster.resources(index)["limits"] for index in range(2)] == [{"cpu": "2", "memory": "500M"}] * 2
        with pytest.raises(ActuatorError, match="target_memory_limit_mib is not set here and must stay as it is"):
            target.apply({"target_memory_limit_mib": 600.0})


def test_a_limit_that_is_held_must_be_there_for_a_policy_and_not_for_who_gives_back(tmp_path: Path) -> None:
    with serve(new_cluster(2, {key: {"cpu": "1"} for key in ("limits", "requests")})) as url:
        found = reached(tmp_path, url, "lease_s: 30}\nshield: {hold: [target_memory_limit_mib]}")
        with pytest.raises(ActuatorError, match="must have a memory limit for target_memory_limit_mib to be held"):
            make_actuator("kubernetes", contract(100.0), found.actuators, found.hold)
        make_actuator("kubernetes", None, found.actuators, found.hold)


def test_where_all_is_held_nothing_changes(tmp_path: Path) -> None:
    cluster = new_cluster(2, {key: {"cpu": "1", "memory": "500M"} for key in ("limits", "requests")})
    with serve(cluster) as url:
        found = reached(tmp_path, url, "controls: [target_memory_limit_mib]}\nshield: {hold: [target_replicas, "
                                       "target_cpu_limit_cores, target_memory_limit_mib]}")
        target = make_actuator("kubernetes", contract(100.0), found.actuators, found.hold)
        target.acquire("me")
        target.apply({"target_memory_limit_mib": target.present()["memory_limit_mib"]})
    assert not cluster.writes()


def killed(url: str) -> KubernetesDeployment:
    """A controller with a lease of 1 s that set something."""
    target = actuator(url, lease_s=1)
    target.acquire("dead")
    target.apply({"target_cpu_limit_cores": 2.0, "target_replicas": 3.0})
    return target


def test_release_waits_for_the_lease_of_a_killed_controller_and_says_so(tmp_path: Path) -> None:
    cluster = new_cluster(2)
    with serve(cluster) as url:
        killed(url)
        found, lines = reached(tmp_path, url, "lease_s: 1}"), []
        with pytest.raises(ActuatorError, match="no controller that acts, got a lease of dead"):
            release("kubernetes", found)
        assert "is set as it was found: cpu_limit_cores 1" in release("kubernetes", found, tell=lines.append)
        assert lines == ["dead has the lease of kubernetes shop/web; waiting 1 s, in which it runs out unless that "
                         "controller still acts"]
    assert cluster.replicas == 2 and cluster.resources()["limits"]["cpu"] == "1"


@pytest.mark.parametrize("change", [
    lambda container: container["resources"]["limits"].pop("cpu"), lambda container: container.update(name="web2")])
def test_release_gives_back_after_a_rollout_that_takes_the_limit_or_the_container_away(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    cluster = new_cluster(2, {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "500m"}})
    with serve(cluster) as url:
        killed(url).release("dead")
        old = [pod["metadata"]["name"] for pod in cluster.pods()]
        cluster.edit("deployments", DEPLOYMENT,
                     lambda item: change(item["spec"]["template"]["spec"]["containers"][0]))
        cluster.store("pods", new_pod(9001, cluster.objects["deployments", DEPLOYMENT]))
        assert "is set as it was found" in release("kubernetes", reached(tmp_path, url, "lease_s: 1}"))
    assert cluster.replicas == 2 and {
        pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] for pod in cluster.pods()
        if pod["metadata"]["name"] in old} == {"1"}


def test_release_leaves_the_lease_of_a_controller_that_acts(tmp_path: Path) -> None:
    cluster = new_cluster(2)
    with serve(cluster) as url:
        acts, found = killed(url), reached(tmp_path, url, "lease_s: 1}")
        with pytest.raises(ActuatorError, match="no controller that acts, got a lease of dead"):
            release("kubernetes", found, tell=lambda line: acts.acquire("dead") and None)
    assert cluster.replicas == 3


def test_the_command_waits_and_says_so_beside_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve(new_cluster(2)) as url:
        killed(url)
        reached(tmp_path, url, "lease_s: 1}")
        assert run(["release", "--controller", str(tmp_path / "controller.yaml"), "--actuator", "kubernetes",
                    "--json"]) == 0
        out, err = capsys.readouterr()
        assert "is set as it was found" in json.loads(out)["released"] and "waiting 1 s" in err
        assert run(["release", "--controller", str(tmp_path / "controller.yaml"), "--actuator", "kubernetes"]) == 1
        assert "nothing is known in the lease assay-web of what was found of kubernetes shop/web" in \
            capsys.readouterr().err


def test_what_is_left_out_has_defaults(tmp_path: Path) -> None:
    found = written(tmp_path, "kubernetes: {namespace: shop, deployment: web, container: app}")
    assert found.actuators == {"kubernetes": KubernetesTarget("shop", "web", "app")}


@pytest.mark.parametrize(("text", "message"), [
    ("kubernetes: {namespace: shop, deployment: web}", "kubernetes.container must be given"),
    ("kubernetes: {namespace: shop, deployment: web, container: a, pod: b}", "kubernetes must be one of"),
    ("kubernetes: {namespace: shop, deployment: web, container: a, lease_s: 0.5}", "lease_s must be a whole number"),
    ("kubernetes: {namespace: shop, deployment: web, container: a, read_s: 0}", "read_s must be a number > 0"),
    ("kubernetes: {namespace: shop, deployment: web, container: a, controls: web}", "controls must be a list"),
])
def test_a_file_that_cannot_be_meant_so_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        written(tmp_path, text)


def test_the_actuator_without_its_part_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kubernetes must name namespace, deployment and container"):
        make_actuator("kubernetes", contract(100.0), written(tmp_path, "").actuators, ())
