"""A target that is watched beside whoever sets it: read as it is, and never set."""

import json
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from feature_store.errors import InputError
from serving.actuators.actuator import ActuatorError
from serving.actuators.actuators import make_actuator, make_shadow
from serving.actuators.kind import Server
from serving.actuators.shadow import Shadow
from serving.control.controller_file import read_controller_file
from tests.feature_store.prometheus_server import faulty_server, reply
from tests.serving.actuators.control_group.groups import PARENT, plain_files
from tests.serving.actuators.kubernetes_server import CONTAINER, DEPLOYMENT, NAMESPACE, new_cluster, serve
from tests.serving.control.world import CONTROLS, contract

NONE = Server("http://127.0.0.1:9", 1.0)
CURRENT = {one.name: one.current for one in CONTROLS}


class NeverSet:
    """A target that fails the test where anything but its present values is asked for."""

    name = "a service"

    def present(self):
        return {"replicas": 3.0, "cpu_limit_cores": 1.0, "memory_limit_mib": 512.0, "ready_replicas": 3.0}

    def __getattr__(self, name):
        raise AssertionError(f"{name} was asked for")


def shadow_of(folder: Path, part: str, actuator: str, server: Server = NONE) -> Shadow:
    path = folder / "controller.yaml"
    path.write_text(f"prometheus: {server.address}\nsignals: {{}}\n{part}")
    written = read_controller_file(path, actuator)
    return make_shadow(actuator, contract(100.0), written.actuators, written.hold, server)


def test_a_shadow_sets_nothing_and_says_what_is_set() -> None:
    shadow = Shadow(NeverSet(), CURRENT)
    assert shadow.name == "a service, in shadow"
    assert shadow.present()["ready_replicas"] == 3.0
    assert shadow.acquire("me") == ""
    assert shadow.apply({"target_replicas": 9.0, "target_cpu_limit_cores": 4.0}).values == {
        "target_replicas": 3.0, "target_cpu_limit_cores": 1.0, "target_memory_limit_mib": 512.0}
    shadow.restore()
    shadow.release("me")


def kubernetes_part(folder: Path, url: str, more: str = "") -> str:
    (folder / "config").write_text(
        f"{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: k, cluster: {{server: '{url}'}}}}], "
        "users: [{name: u, user: {token: secret}}], contexts: [{name: c, context: {cluster: k, user: u}}]}")
    return (f"kubernetes: {{namespace: {NAMESPACE}, deployment: {DEPLOYMENT}, container: {CONTAINER}, "
            f"kubeconfig: {folder / 'config'}{more}}}\n")


def test_a_deployment_is_watched_beside_an_hpa_by_reading_alone(tmp_path: Path) -> None:
    cluster = new_cluster(3)
    cluster.store("horizontalpodautoscalers", {"metadata": {"name": "web-hpa"}, "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": DEPLOYMENT}}})
    cluster.rules = {("apps", "deployments", "get", ""), ("", "pods", "list", "")}  # and no more than that
    with serve(cluster) as url:
        shadow = shadow_of(tmp_path, kubernetes_part(tmp_path, url), "kubernetes")
        assert shadow.name == "kubernetes shop/web, in shadow"
        assert shadow.acquire("me") == ""
        assert shadow.present()["replicas"] == 3.0
        assert shadow.apply({"target_replicas": 5.0}).values["target_replicas"] == 3.0
        cluster.scale_to(4)
        assert shadow.present()["replicas"] == 4.0
    assert {line.split()[0] for line, _ in cluster.requests} == {"GET"}
    assert not any("lease" in line or "autoscal" in line for line, _ in cluster.requests)


def test_a_limit_that_no_pod_has_is_missing_and_stops_no_start(tmp_path: Path) -> None:
    with serve(new_cluster(2, {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})) as url:
        shadow = shadow_of(tmp_path, kubernetes_part(tmp_path, url), "kubernetes")
        assert shadow.present() == {"replicas": 2.0, "ready_replicas": 2.0, "cpu_limit_cores": 1.0}
        assert "target_memory_limit_mib" not in shadow.apply({}).values


def test_what_the_actuator_would_not_set_must_be_held_as_beside_a_controller_that_acts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must have target_cpu_limit_cores, target_memory_limit_mib, which kubernetes"):
        shadow_of(tmp_path, kubernetes_part(tmp_path, "http://127.0.0.1:9", ", controls: [target_replicas]"),
                  "kubernetes")


def test_a_deployment_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with serve(new_cluster(2)) as url, pytest.raises(ActuatorError, match="nothing"):
        shadow_of(tmp_path, kubernetes_part(tmp_path, url).replace("deployment: web", "deployment: nothing"),
                  "kubernetes")


def test_a_group_is_watched_without_a_lease_or_a_file_of_its_own(tmp_path: Path) -> None:
    tree = plain_files(tmp_path / "groups", 2)
    tree.set(cpu="150000 100000")
    found = tree.limits()
    shadow = shadow_of(tmp_path, f"cgroup: {{group: nginx, parent: {PARENT}, root: {tree.root}, "
                                 f"state: {tmp_path / 'state'}}}\nshield: {{hold: [target_replicas]}}\n", "cgroup")
    assert shadow.present()["cpu_limit_cores"] == 1.5
    assert shadow.apply({"target_cpu_limit_cores": 9.0}).values["target_cpu_limit_cores"] == 1.5
    assert tree.limits() == found and not (tmp_path / "state").exists()


WATCH = """watch:
  signals:
    replicas: replicas
    cpu_limit_cores: 2
    memory_limit_mib: {query: memory_bytes, scale: 9.5367e-7, newest: newest, fresh_s: 30}
"""


def answers(values, ago_s=5.0):
    def respond(handler) -> None:
        name, now = parse_qs(urlsplit(handler.path).query)["query"][0], time.time()
        known = {**values, "newest": now - ago_s}
        result = [{"metric": {}, "value": [now, str(known[name])]}] if name in known else []
        reply({"status": "success", "data": {"resultType": "vector", "result": result}})(handler)

    return respond


def test_prometheus_alone_may_say_what_is_set(tmp_path: Path) -> None:
    with faulty_server(answers({"replicas": 3, "memory_bytes": 2**29})) as (url, _):
        shadow = shadow_of(tmp_path, WATCH, "watch", Server(url, 2.0))
        assert shadow.name == f"what {url} knows, in shadow"
        assert shadow.present() == {"replicas": 3.0, "cpu_limit_cores": 2.0,
                                    "memory_limit_mib": pytest.approx(512.0, rel=1e-4)}


@pytest.mark.parametrize(("values", "ago_s"), [({"replicas": 3}, 5.0), ({"replicas": 3, "memory_bytes": 2**29}, 60.0)])
def test_what_prometheus_does_not_know_or_knew_long_ago_is_missing(tmp_path: Path, values, ago_s) -> None:
    with faulty_server(answers(values, ago_s)) as (url, _):
        assert "memory_limit_mib" not in shadow_of(tmp_path, WATCH, "watch", Server(url, 2.0)).present()


def test_a_server_that_does_not_answer_is_the_target_s_trouble(tmp_path: Path) -> None:
    with faulty_server(reply("busy", 503)) as (url, _):
        shadow = shadow_of(tmp_path, WATCH, "watch", Server(url, 2.0))
        with pytest.raises(ActuatorError, match="HTTP 503") as failed:
            shadow.present()
    assert failed.value.kind == "unreachable"


@pytest.mark.parametrize(("part", "message"), [
    ("watch: {signals: {replicas: a, cpu_limit_cores: 2}}", "must say what is set, got nothing for memory_limit_mib"),
    (WATCH.replace("replicas: replicas", "replica: replicas"), "got 'replica'; did you mean 'replicas'"),
    ("watch: {replicas: a}", "watch must be one of signals, got 'replicas'"),
    (WATCH.replace("query: memory_bytes", "qery: memory_bytes"), "watch.signals.memory_limit_mib must be one of query"),
    ("", "watch must say by which queries what is set is known"),
])
def test_a_watch_that_cannot_be_meant_so_is_one_line(tmp_path: Path, part: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shadow_of(tmp_path, part, "watch")


def test_whoever_only_looks_is_no_actuator(tmp_path: Path) -> None:
    (tmp_path / "controller.yaml").write_text("prometheus: http://127.0.0.1:9\nsignals: {}\n" + WATCH)
    written = read_controller_file(tmp_path / "controller.yaml", "watch")
    with pytest.raises(InputError, match=r"got watch, which only looks; with --shadow nothing is set"):
        make_actuator("watch", contract(100.0), written.actuators, ())


@pytest.mark.parametrize(("name", "part", "message"), [
    ("dry-run", {"dry_run": {}}, "such as cgroup, kubernetes, watch, got dry-run, which has nothing to look at"),
    ("tests.serving.control.measuring_actuator", {"world": 3}, "which measures by what it sends itself"),
])
def test_what_cannot_be_watched_is_refused(name: str, part, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_shadow(name, contract(100.0), part, (), NONE)


def test_the_example_in_the_module_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "serving/actuators/watch.py").read_text()
    part = text.partition("    watch:\n")[2].partition('"""')[0]
    (tmp_path / "controller.yaml").write_text("prometheus: http://127.0.0.1:9\nsignals: {}\nwatch:\n" + part)
    target = read_controller_file(tmp_path / "controller.yaml", "watch").actuators["watch"]
    assert json.dumps(dict(target.constants)) == '{"cpu_limit_cores": 2.0}' and len(target.queries) == 2
