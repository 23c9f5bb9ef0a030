"""The Kubernetes actuator as a controller's file names it."""

from pathlib import Path

import pytest

from feature_store.errors import InputError
from serving.actuators.actuators import make_actuator
from serving.actuators.kubernetes import KubernetesTarget
from serving.control.controller_file import read_controller_file
from tests.serving.actuators.kubernetes_server import new_cluster, serve
from tests.serving.control.world import contract


def written(folder: Path, kubernetes: str):
    path = folder / "controller.yaml"
    path.write_text(f"prometheus: http://127.0.0.1:9090\nsignals: {{}}\n{kubernetes}")
    return read_controller_file(path)


def test_a_file_names_a_deployment_and_how_it_is_reached(tmp_path: Path) -> None:
    with serve(new_cluster(2)) as url:
        (tmp_path / "config").write_text(
            "{apiVersion: v1, kind: Config, current-context: c, "
            f"clusters: [{{name: k, cluster: {{server: '{url}'}}}}], "
            "users: [{name: u, user: {token: secret}}], contexts: [{name: c, context: {cluster: k, user: u}}]}")
        found = written(tmp_path, "kubernetes: {namespace: shop, deployment: web, container: web, lease_s: 30, "
                                  f"controls: [target_replicas], kubeconfig: {tmp_path / 'config'}}}\n"
                                  "shield: {hold: [target_cpu_limit_cores, target_memory_limit_mib]}")
        target = make_actuator("kubernetes", contract(100.0), found.actuators, found.hold)
        assert target.name == "kubernetes shop/web" and target.present()["replicas"] == 2.0


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
