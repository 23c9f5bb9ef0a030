"""What the Kubernetes actuator reads and sets, over real HTTP to a server that is no cluster (kubernetes_server.py)."""

import json
import subprocess
import sys

import pytest
import yaml

from feature_store.errors import InputError
from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.found import ANNOTATION
from serving.actuators.kubernetes import CONTROLS, KubernetesDeployment
from tests.serving.actuators.kubernetes_server import (
    DEPLOYMENT,
    MANIFEST,
    ROOT,
    Fault,
    granted,
    new_cluster,
    new_pod,
    pending,
    serve,
)
from tests.serving.actuators.kubernetes_target import ME, acting, actuator, api

THREE = {"target_replicas": 4.0, "target_cpu_limit_cores": 1.5, "target_memory_limit_mib": 768.0}


def test_the_client_is_imported_when_it_is_needed_and_its_absence_names_the_command() -> None:
    code = ("import sys, serving.actuators.kubernetes as k; assert 'kubernetes' not in sys.modules; "
            "sys.modules['kubernetes'] = None\n"
            "from serving.actuators.deployment.api import cluster_configuration as c\n"
            "try: c()\nexcept Exception as e: print(type(e).__name__, e)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingToolError") and "pip install 'assay[kubernetes]'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_present_is_what_is_asked_for_what_serves_and_the_limits_that_hold() -> None:
    with serve(new_cluster(3)) as url:
        target = actuator(url)
        assert target.name == "kubernetes shop/web"
        assert target.present() == {"replicas": 3.0, "ready_replicas": 3.0, "cpu_limit_cores": 1.0,
                                    "memory_limit_mib": 512.0}


def test_all_three_are_set_and_the_template_is_left_alone() -> None:
    cluster = new_cluster(3)
    template = cluster.objects["deployments", DEPLOYMENT]["spec"]["template"]
    with acting(cluster) as target:
        applied = target.apply(THREE)
        assert dict(applied.values) == THREE and applied.notes == ()
        assert [cluster.resources(index)["limits"] for index in range(3)] == [{"cpu": "1500m", "memory": "768Mi"}] * 3
        assert [cluster.resources(index)["requests"] for index in range(3)] == [{"cpu": "1500m", "memory": "768Mi"}] * 3
        assert cluster.replicas == 4 and target.present()["replicas"] == 4
    assert cluster.objects["deployments", DEPLOYMENT]["spec"]["template"] == template


def test_a_pod_that_started_later_is_resized_at_the_next_apply() -> None:
    cluster = new_cluster(3)
    with acting(cluster) as target:
        target.apply(THREE)
        assert cluster.resources(3)["limits"]["cpu"] == "1"
        assert "pods differ in cpu_limit_cores: 1 to 1.5" in target.apply(THREE).notes
        assert cluster.resources(3)["limits"] == {"cpu": "1500m", "memory": "768Mi"}


LARGE = {"limits": {"cpu": "4", "memory": "512Mi"}, "requests": {"cpu": "4", "memory": "512Mi"}}


def cores_of(cluster) -> list[str]:
    return [cluster.resources(index)["limits"]["cpu"] for index in range(len(cluster.pods()))]


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("why", ["scaled", "replaced"])
def test_a_new_pod_does_not_lift_all_others_to_the_limits_of_the_template(why: str, new_process: bool) -> None:
    """It is ready before the next step, and a shield keeps what is present while the objective is missed."""
    cluster = new_cluster(8, LARGE)
    with serve(cluster) as url:
        target = actuator(url)
        target.acquire(ME)
        target.apply({"target_replicas": 8.0, "target_cpu_limit_cores": 0.5})
        if why == "scaled":
            target.apply({"target_replicas": 9.0, "target_cpu_limit_cores": 0.5})
        else:
            del cluster.objects["pods", cluster.pods()[0]["metadata"]["name"]]
            cluster.scale_to(8)
        if new_process:
            target = actuator(url)
        target.acquire(ME)
        present = target.present()
        assert (present["cpu_limit_cores"], cores_of(cluster)[-1]) == (0.5, "4")
        target.apply({"target_replicas": present["replicas"], "target_cpu_limit_cores": 0.6})
        assert set(cores_of(cluster)) == {"600m"} and target.present()["cpu_limit_cores"] == 0.6


def test_a_new_pod_stays_new_until_its_resize_is_done() -> None:
    cluster = new_cluster(2, LARGE)
    with acting(cluster) as target:
        target.apply({"target_replicas": 3.0, "target_cpu_limit_cores": 0.5})
        cluster.faults.append(Fault("resize.*assay$", 500, "try again", times=1))
        with pytest.raises(ActuatorError, match="try again"):
            target.apply({"target_cpu_limit_cores": 0.5})
        assert target.present()["cpu_limit_cores"] == 0.5
        node, cluster.node = cluster.node, lambda pod: None  # what it is to have is written, and not done yet
        target.apply({"target_cpu_limit_cores": 0.5})
        assert cores_of(cluster) == ["500m"] * 3 and target.present()["cpu_limit_cores"] == 0.5
        cluster.edit("pods", cluster.pods()[2]["metadata"]["name"], node)
        target.apply({"target_cpu_limit_cores": 0.5})
        assert target.present()["cpu_limit_cores"] == 0.5


def test_a_new_pod_whose_resize_is_not_done_is_new_to_the_next_controller_too() -> None:
    cluster = new_cluster(2, LARGE)
    with acting(cluster) as target:
        target.apply({"target_replicas": 3.0, "target_cpu_limit_cores": 0.5})
        cluster.node = lambda pod: None
        target.apply({"target_cpu_limit_cores": 0.5})
        target.release(ME)
    with acting(cluster) as target:
        assert target.present()["cpu_limit_cores"] == 0.5
        target.apply({"target_cpu_limit_cores": 0.5})
    assert cores_of(cluster) == ["500m"] * 3


def test_a_pod_that_was_there_before_and_is_raised_by_hand_counts() -> None:
    cluster = new_cluster(2, LARGE)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 0.5})
        def raise_it(pod: dict) -> None:
            for resources in (pod["spec"]["containers"][0], pod["status"]["containerStatuses"][0]):
                resources["resources"]["limits"]["cpu"] = "4"
        cluster.edit("pods", cluster.pods()[0]["metadata"]["name"], raise_it)
        assert target.present()["cpu_limit_cores"] == 4.0


def test_pods_that_are_all_new_have_the_limits_of_the_template() -> None:
    cluster = new_cluster(2, LARGE)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 0.5})
        for pod in cluster.pods():
            del cluster.objects["pods", pod["metadata"]["name"]]
        cluster.scale_to(2)
        assert target.present()["cpu_limit_cores"] == 4.0


def changed_template(cluster, change) -> None:
    """What `kubectl apply` does to the container of the template; the pods of the rollout follow by `start`."""
    cluster.edit("deployments", DEPLOYMENT, lambda item: change(item["spec"]["template"]["spec"]["containers"][0]))


def start(cluster, number: int, ready: bool = True) -> str:
    """A pod of the present template; its name."""
    pod = new_pod(number, cluster.objects["deployments", DEPLOYMENT])
    pod["status"]["conditions"][0]["status"] = str(ready)
    return cluster.store("pods", pod)["metadata"]["name"]


def limits_of(cluster, name: str) -> dict:
    return cluster.objects["pods", name]["spec"]["containers"][0]["resources"]["limits"]


SHARED = {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "500m", "memory": "256Mi"}}


@pytest.mark.parametrize("unready_first", [False, True])
@pytest.mark.parametrize("after_present", [False, True])
def test_a_limit_that_is_raised_through_the_template_is_not_taken_away(unready_first: bool, after_present: bool
                                                                        ) -> None:
    """From 1 to 4 cores, one pod after the other, while the target is what is present, and memory is raised as well."""
    cluster = new_cluster(2, SHARED)
    old = [pod["metadata"]["name"] for pod in cluster.pods()]
    with acting(cluster) as target:
        target.apply({"target_replicas": 2.0, "target_cpu_limit_cores": 1.5})
        changed_template(cluster, lambda container: container["resources"]["limits"].update(cpu="4"))
        for number in (9001, 9002, 9003):
            name = "" if after_present else start(cluster, number, not unready_first)
            present = target.present()
            name = name or start(cluster, number, not unready_first)
            target.apply({"target_replicas": 2.0, "target_cpu_limit_cores": present["cpu_limit_cores"],
                          "target_memory_limit_mib": 600.0})
            assert limits_of(cluster, name) == {"cpu": "4", "memory": "600Mi"}
            cluster.edit("pods", name, lambda pod: pod["status"]["conditions"][0].update(status="True"))
            assert target.present()["cpu_limit_cores"] == 4.0
            if old:
                del cluster.objects["pods", old.pop()]
        target.present()
        target.apply({"target_cpu_limit_cores": 3.8})
        assert set(cores_of(cluster)) == {"3800m"}
        start(cluster, 9004)
        assert target.present()["cpu_limit_cores"] == 3.8  # a pod of a scale-up is new again


def test_a_rollout_that_leaves_the_limits_of_the_template_alone_does_not_lift_all_to_them() -> None:
    cluster = new_cluster(2, LARGE)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 0.5})
        changed_template(cluster, lambda container: container.update(image="web:2"))
        name = start(cluster, 9001)
        assert target.present()["cpu_limit_cores"] == 0.5
        target.apply({"target_cpu_limit_cores": 0.5})
    assert limits_of(cluster, name)["cpu"] == "500m"


@pytest.mark.parametrize("target_cores", [1.4, 1.5, 2.0])
def test_a_pod_that_does_not_serve_loses_no_more_than_the_share_of_a_step(target_cores: float) -> None:
    """Overloaded, it was given 4 cores by hand; from 1.5, which is present, to 1.4 is a step that a rate allows."""
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.5})
        def raise_it(pod: dict) -> None:
            for resources in (pod["spec"]["containers"][0], pod["status"]["containerStatuses"][0]):
                resources["resources"]["limits"]["cpu"] = "4"
            pod["status"]["conditions"][0]["status"] = "False"
        name = cluster.pods()[0]["metadata"]["name"]
        cluster.edit("pods", name, raise_it)
        assert target.present()["cpu_limit_cores"] == 1.5
        notes = target.apply({"target_cpu_limit_cores": target_cores}).notes
        assert notes == (f"pod {name} keeps its cpu limit of 4, which is above what counted as present",)
        assert cores_of(cluster) == ["4", f"{1000 * target_cores:.0f}m" if target_cores < 2 else "2"]


def test_a_pod_without_a_limit_is_given_none() -> None:
    """The operator takes it out of the template; the pod of the rollout does not serve yet."""
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.2, "target_memory_limit_mib": 600.0})
        changed_template(cluster, lambda container: container["resources"]["limits"].pop("cpu"))
        name = start(cluster, 9001, ready=False)
        target.present()
        notes = target.apply({"target_cpu_limit_cores": 1.1, "target_memory_limit_mib": 600.0}).notes
        assert f"pod {name} has no cpu limit, and is given none" in notes
        assert limits_of(cluster, name) == {"memory": "600Mi"}
        assert target.restore() is True
        assert limits_of(cluster, name) == {"memory": "512Mi"} and sorted(cores_of_all(cluster)) == ["", "1", "1"]


def cores_of_all(cluster) -> list[str]:
    return [cluster.resources(index)["limits"].get("cpu", "") for index in range(len(cluster.pods()))]


def test_what_is_so_already_is_not_written_again() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply(THREE | {"target_replicas": 2.0})
        before = len([line for line, _ in cluster.requests if not line.startswith("GET")])
        target.apply(THREE | {"target_replicas": 2.0})
        assert len([line for line, _ in cluster.requests if not line.startswith("GET")]) == before


def test_targets_are_rounded_to_what_kubernetes_has_and_said_so() -> None:
    cluster = new_cluster(1)
    with acting(cluster) as target:
        applied = target.apply({"target_replicas": 2.4, "target_cpu_limit_cores": 0.12345,
                                "target_memory_limit_mib": 99.7})
    assert dict(applied.values) == {"target_replicas": 2.0, "target_cpu_limit_cores": 0.123,
                                    "target_memory_limit_mib": 100.0}


def test_requests_keep_their_share_of_the_limit_without_drift() -> None:
    resources = {"limits": {"cpu": "900m", "memory": "300Mi"}, "requests": {"cpu": "300m", "memory": "100Mi"}}
    cluster = new_cluster(1, resources)
    with acting(cluster) as target:
        for cores in (0.1, 0.7, 0.011, 0.9):
            target.apply({"target_cpu_limit_cores": cores})
        assert cluster.resources()["requests"] == {"cpu": "300m", "memory": "100Mi"}
        target.apply({"target_cpu_limit_cores": 1.0})
        assert cluster.resources()["requests"]["cpu"] == "333m"


def requests_of(cluster) -> list[str]:
    return [cluster.resources(index)["requests"]["cpu"] for index in range(len(cluster.pods()))]


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("request_of_somebody", ["700m", "500m"])
def test_a_request_that_somebody_else_set_stays_where_its_limit_is_changed_and_where_it_is_set_back(
    request_of_somebody: str, new_process: bool
) -> None:
    """Of 500m it was set with its limit to 1 core: also who sets it to 500m again has set it."""
    cluster = new_cluster(2, SHARED)
    with serve(cluster) as url:
        target = actuator(url)
        target.acquire(ME)
        target.apply({"target_cpu_limit_cores": 2.0})
        assert requests_of(cluster) == ["1", "1"]
        cluster.resize_by_hand(requests={"cpu": request_of_somebody})
        if new_process:
            target = actuator(url)
            target.acquire(ME)
        target.apply({"target_cpu_limit_cores": 1.8})
        target.apply({"target_cpu_limit_cores": 1.6})
        assert (cores_of(cluster), requests_of(cluster)) == (["1600m"] * 2, [request_of_somebody, "800m"])
        if request_of_somebody == "500m":
            assert target.restore() is True
        else:
            name = cluster.pods()[0]["metadata"]["name"]
            with pytest.raises(ActuatorError, match=f"somebody else changed them: cpu request of pod {name}$") as left:
                target.restore()
            assert (left.value.kind, left.value.partly) == ("conflict", {"target_cpu_limit_cores": 1.0})
        assert (cores_of(cluster), requests_of(cluster)) == (["1"] * 2, [request_of_somebody, "500m"])


def test_a_limit_stays_above_the_request_that_somebody_else_set() -> None:
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 2.0})
        cluster.resize_by_hand(requests={"cpu": "1500m"})
        name = cluster.pods()[0]["metadata"]["name"]
        for cores in (1.5, 1.4):
            assert target.apply({"target_cpu_limit_cores": cores}).notes == (
                *(["pods differ in cpu_limit_cores: 1.5 to 2"] if cores == 1.4 else []),
                f"pod {name} keeps its cpu limit of 2, since somebody else set a request of 1500m")
            assert (cores_of(cluster), requests_of(cluster)[0]) == (["2", f"{1000 * cores:.0f}m"], "1500m")
        with pytest.raises(ActuatorError, match=f"changed them: cpu of pod {name}, cpu request of pod {name}$"):
            target.restore()
        assert (cores_of(cluster), requests_of(cluster)) == (["2", "1"], ["1500m", "500m"])


@pytest.mark.parametrize("resources", [SHARED, None])
def test_a_request_that_somebody_else_made_equal_to_its_limit_stays_equal(resources: dict | None) -> None:
    """As it must in a pod of the class Guaranteed."""
    cluster = new_cluster(2, resources)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 2.0})
        cluster.resize_by_hand(limits={"cpu": "3"}, requests={"cpu": "3"})
        target.present()
        target.apply({"target_cpu_limit_cores": 2.5})
        assert cores_of(cluster) == requests_of(cluster)[:1] * 2 == ["2500m"] * 2
        if resources is None:
            assert target.restore() is True
        else:
            with pytest.raises(ActuatorError, match="somebody else changed them: cpu request of pod"):
                target.restore()
        assert cores_of(cluster) == requests_of(cluster)[:1] * 2 == ["1"] * 2


def test_a_request_that_was_set_here_is_set_back_where_somebody_else_changed_its_limit() -> None:
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 2.0})
        cluster.resize_by_hand(0, limits={"cpu": "3"})
        cluster.resize_by_hand(1, limits={"cpu": "1"})
        names = [pod["metadata"]["name"] for pod in cluster.pods()]
        later = ", ".join(f"cpu request of pod {name}" for name in names)
        with pytest.raises(ActuatorError, match=f"gives it back.*: {later}$"):
            target.restore(lowering=False)
        assert requests_of(cluster) == ["1", "1"]
        with pytest.raises(ActuatorError, match=f"somebody else changed them: cpu of pod {names[0]}$"):
            target.restore()
    assert (cores_of(cluster), requests_of(cluster)) == (["3", "1"], ["500m", "500m"])


def test_only_the_controls_that_were_given_are_set_and_others_must_stay() -> None:
    cluster = new_cluster(2)
    with acting(cluster, controls=("target_replicas",)) as target:
        target.apply({"target_replicas": 3.0, "target_cpu_limit_cores": 1.0 + 1e-8})
        assert cluster.replicas == 3 and not any("resize" in line for line, _ in cluster.writes())
        with pytest.raises(ActuatorError, match="cores is not set here and must stay as it is") as refused:
            target.apply({"target_replicas": 4.0, "target_cpu_limit_cores": 2.0})
        assert refused.value.kind == "refused" and cluster.replicas == 3


@pytest.mark.parametrize(("targets", "message"), [
    ({"target_replicas": float("nan")}, "from 1 on, got nan"),
    ({"target_replicas": 0.0}, "from 1 on, got 0"),
    ({"target_cpu_limit_cores": 0.0}, "above 0, got 0"),
    ({"target_memory_limit_mib": float("inf")}, "above 0, got inf"),
    ({"target_gpus": 1.0}, "must be one of"),
])
def test_a_target_that_is_none_is_refused_before_anything_is_set(targets: dict[str, float], message: str) -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        with pytest.raises(ActuatorError, match=message) as refused:
            target.apply({"target_cpu_limit_cores": 2.0} | targets)
    assert refused.value.kind == "refused" and not cluster.writes()


def test_unequal_pods_count_as_the_largest_and_are_noted() -> None:
    cluster = new_cluster(2)
    name = cluster.pods()[1]["metadata"]["name"]
    def enlarge(pod: dict) -> None:
        for resources in (pod["spec"]["containers"][0], pod["status"]["containerStatuses"][0]):
            resources["resources"]["limits"]["cpu"] = "3"
    cluster.edit("pods", name, enlarge)
    with acting(cluster) as target:
        assert target.present()["cpu_limit_cores"] == 3.0
        assert target.apply({"target_replicas": 2.0}).notes == ("pods differ in cpu_limit_cores: 1 to 3",)


def test_pods_of_others_pods_that_stop_and_pods_that_wait_are_left_alone() -> None:
    cluster = new_cluster(1)
    for number, change in enumerate((
        lambda pod: pod["metadata"].update(ownerReferences=[]),
        lambda pod: pod["metadata"]["ownerReferences"][0].update(name="web-admin-6d4cf56db6"),
        lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
        lambda pod: pod["status"].update(phase="Pending"),
    )):
        pod = new_pod(9000 + number, cluster.objects["deployments", DEPLOYMENT])
        change(pod)
        cluster.store("pods", pod)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 2.0})
    assert [cluster.resources(index)["limits"]["cpu"] for index in range(5)] == ["2", "1", "1", "1", "1"]


def test_pods_that_do_not_serve_yet_count_only_where_none_does() -> None:
    cluster = new_cluster(2)
    def start(pod: dict) -> None:
        pod["status"]["conditions"][0]["status"] = "False"
        pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "4"
        del pod["status"]["containerStatuses"]
    cluster.edit("pods", cluster.pods()[1]["metadata"]["name"], start)
    with serve(cluster) as url:
        target = actuator(url)
        assert target.present()["cpu_limit_cores"] == 1.0
        del cluster.objects["pods", cluster.pods()[0]["metadata"]["name"]]
        assert target.present()["cpu_limit_cores"] == 4.0


def test_without_a_running_pod_the_template_says_what_is_set_and_limits_wait() -> None:
    cluster = new_cluster(0)
    with acting(cluster) as target:
        assert target.present() == {"replicas": 0.0, "ready_replicas": 0.0, "cpu_limit_cores": 1.0,
                                    "memory_limit_mib": 512.0}
        applied = target.apply({"target_cpu_limit_cores": 2.0, "target_replicas": 1.0})
        assert dict(applied.values) == {"target_replicas": 1.0}
        assert applied.notes == ("no pod runs whose limits could be set",)


def test_a_container_without_a_limit_is_refused_where_it_would_be_set_and_not_observed_elsewhere() -> None:
    cluster = new_cluster(2, {"limits": {"memory": "512Mi"}, "requests": {"cpu": "1", "memory": "512Mi"}})
    with serve(cluster) as url:
        with pytest.raises(ActuatorError, match="must have a cpu limit for target_cpu_limit_cores") as refused:
            actuator(url)
        assert refused.value.kind == "refused"
        assert "cpu_limit_cores" not in actuator(url, controls=("target_replicas",)).present()


def test_a_resize_that_waits_is_a_note_and_present_says_what_holds() -> None:
    cluster = new_cluster(1)
    cluster.node = pending("Deferred", "node too small at present")
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 2.0})
        assert target.present()["cpu_limit_cores"] == 1.0
        name = cluster.pods()[0]["metadata"]["name"]
        assert target.apply({"target_cpu_limit_cores": 2.0}).notes == (
            f"the resize of pod {name} is not done: Deferred: node too small at present",)


@pytest.mark.parametrize("target", [1.0, 1.2])
def test_a_raise_that_its_node_has_not_carried_out_yet_is_not_undone(target: float) -> None:
    """By hand, say: 2 cores are asked for, 1 holds. A shield that takes nothing away sets what holds, or more."""
    cluster = new_cluster(1)
    with acting(cluster) as controller:
        controller.apply({"target_cpu_limit_cores": 1.0})
        cluster.node = pending("Deferred", "node too small at present")
        cluster.edit("pods", cluster.pods()[0]["metadata"]["name"], lambda pod: (
            pod["spec"]["containers"][0]["resources"]["limits"].update(cpu="2"), cluster.node(pod)))
        assert controller.present()["cpu_limit_cores"] == 1.0
        controller.apply({"target_cpu_limit_cores": target})
        assert cluster.resources()["limits"]["cpu"] == "2"
        controller.present()
        controller.apply({"target_cpu_limit_cores": 0.9})
        assert cluster.resources()["limits"]["cpu"] == "900m"


@pytest.mark.parametrize("memory", ["300M", "500M"])
@pytest.mark.parametrize("share", [1.0, 1.0 - 1e-7, 1.0 + 1e-7])
def test_what_is_to_stay_as_it_is_is_not_rounded(memory: str, share: float) -> None:
    """Down from 286.1 or up from 476.8 MiB; a network's float32 between the present value and the target."""
    cluster = new_cluster(2, {"limits": {"cpu": "1", "memory": memory}, "requests": {"cpu": "1", "memory": memory}})
    with acting(cluster) as target:
        before, present = cluster.resources(), target.present()
        kept = {"target_replicas": 2.0, "target_cpu_limit_cores": present["cpu_limit_cores"],
                "target_memory_limit_mib": share * present["memory_limit_mib"]}
        applied = target.apply(kept)
        assert cluster.resources() == before and not cluster.writes()
        assert applied.values["target_memory_limit_mib"] == present["memory_limit_mib"]
        def shrink(pod: dict) -> None:
            for resources in (pod["spec"]["containers"][0], pod["status"]["containerStatuses"][0]):
                resources["resources"] = {key: {"cpu": "1", "memory": "64Mi"} for key in ("limits", "requests")}
        cluster.edit("pods", cluster.pods()[1]["metadata"]["name"], shrink)
        target.apply(kept)
        assert cluster.resources() == before
        assert cluster.resources(1)["limits"]["memory"] == str(1000**2 * int(memory.removesuffix("M")))


@pytest.mark.parametrize("what", ["replicas", "limits"])
def test_what_somebody_else_raises_while_it_is_decided_is_a_conflict(what: str) -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.present()
        if what == "replicas":
            cluster.scale_to(5)
        else:
            cluster.edit("pods", cluster.pods()[0]["metadata"]["name"], lambda pod:
                         pod["spec"]["containers"][0]["resources"]["limits"].update(cpu="3"))
        with pytest.raises(ActuatorError, match=f"changed by somebody else since it was read .*{what}") as raised:
            target.apply(THREE)
        assert raised.value.kind == "conflict"
        stands = cluster.replicas, cluster.resources()["limits"]["cpu"]
        assert stands == ((5, "1") if what == "replicas" else (2, "3"))
        target.present()
        assert target.apply(THREE).values == THREE


def test_a_resize_in_progress_is_a_note() -> None:
    cluster = new_cluster(1)
    cluster.node = lambda pod: pod["status"]["conditions"].append({"type": "PodResizeInProgress", "status": "True"})
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 2.0})
        (note,) = target.apply({"target_cpu_limit_cores": 2.0}).notes
        assert note.endswith("is not done: InProgress")


def test_a_resize_that_no_node_can_do_is_refused_after_the_rest_was_set_and_another_target_ends_it() -> None:
    cluster = new_cluster(1)
    cluster.node = pending("Infeasible", "Node didn't have enough capacity: cpu")
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 500.0})
        with pytest.raises(ActuatorError, match="Infeasible: Node didn't have enough capacity") as refused:
            target.apply({"target_cpu_limit_cores": 500.0, "target_replicas": 2.0})
        assert refused.value.kind == "refused" and cluster.replicas == 2
        assert refused.value.partly["target_replicas"] == 2.0
        cluster.node = new_cluster().node
        target.apply({"target_cpu_limit_cores": 2.0})
        assert target.apply({"target_cpu_limit_cores": 2.0}).notes == ()


def test_a_container_that_a_resize_restarts_is_noted() -> None:
    cluster = new_cluster(1)
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    cluster.edit("deployments", DEPLOYMENT,
                 lambda item: item["spec"]["template"]["spec"]["containers"][0].update(resizePolicy=policy))
    with acting(cluster) as target:
        assert target.apply({"target_memory_limit_mib": 600.0}).notes == (
            "the container's resizePolicy restarts it where its memory changes",)


def test_a_container_that_is_not_there_is_named_with_those_that_are() -> None:
    with serve(new_cluster()) as url:
        with pytest.raises(ActuatorError, match=r"one of the Deployment web \(web, sidecar\), got wed"):
            KubernetesDeployment(api(url), DEPLOYMENT, "wed")
        with pytest.raises(InputError, match="did you mean 'target_replicas'"):
            KubernetesDeployment(api(url), DEPLOYMENT, "web", controls=("replicas",))


# --- others that own the target


def horizontal(kind: str = "Deployment", name: str = DEPLOYMENT) -> dict:
    return {"metadata": {"name": "web-hpa"}, "spec": {"scaleTargetRef": {"kind": kind, "name": name}}}


def vertical(mode: str | None) -> dict:
    policy = {} if mode is None else {"updatePolicy": {"updateMode": mode}}
    target = {"kind": "Deployment", "name": DEPLOYMENT}
    return {"metadata": {"name": "web-vpa"}, "spec": {"targetRef": target, **policy}}


def test_a_target_of_an_hpa_is_refused_at_the_start_and_at_each_acquire() -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        target = actuator(url)
        target.acquire(ME)
        cluster.store("horizontalpodautoscalers", horizontal())
        for attempt in (lambda: target.acquire(ME), lambda: actuator(url)):
            with pytest.raises(ActuatorError, match="Autoscaler web-hpa sets the replicas of web too") as refused:
                attempt()
            assert refused.value.kind == "refused"


@pytest.mark.parametrize("other", [horizontal(name="api"), horizontal(kind="StatefulSet")])
def test_an_hpa_of_something_else_is_none_of_our_business(other: dict) -> None:
    cluster = new_cluster()
    cluster.store("horizontalpodautoscalers", other)
    with acting(cluster):
        pass


def test_an_hpa_may_own_the_replicas_where_only_limits_are_set() -> None:
    cluster = new_cluster()
    cluster.store("horizontalpodautoscalers", horizontal())
    with acting(cluster, controls=("target_cpu_limit_cores",)):
        pass


@pytest.mark.parametrize("mode", [None, "Auto", "Recreate", "InPlaceOrRecreate", "SomethingNew"])
def test_a_vpa_that_acts_is_refused_for_limits_alone(mode: str | None) -> None:
    cluster = new_cluster()
    cluster.vertical = True
    cluster.store("verticalpodautoscalers", vertical(mode))
    with serve(cluster) as url:
        with pytest.raises(ActuatorError, match="VerticalPodAutoscaler web-vpa") as refused:
            actuator(url)
        assert refused.value.kind == "refused"
        actuator(url, controls=("target_replicas",))


@pytest.mark.parametrize("mode", ["Off", "Initial"])
def test_a_vpa_that_changes_no_running_pod_may_stay(mode: str) -> None:
    cluster = new_cluster()
    cluster.vertical = True
    cluster.store("verticalpodautoscalers", vertical(mode))
    with acting(cluster):
        pass


# --- restore


def test_restore_gives_back_what_was_found_to_the_letter() -> None:
    resources = {"limits": {"cpu": "900m", "memory": "300Mi"}, "requests": {"cpu": "0.3", "memory": "100Mi"}}
    cluster = new_cluster(2, resources)
    with acting(cluster) as target:
        target.apply(THREE)
        target.apply(THREE | {"target_cpu_limit_cores": 2.0, "target_replicas": 3.0})
        assert target.restore() is True
        assert cluster.replicas == 2 and [cluster.resources(index) for index in range(2)] == [resources] * 2
        assert ANNOTATION not in cluster.objects["leases", "assay-web"]["metadata"]["annotations"]
        writes = len(cluster.writes())
        assert target.restore() is False
        assert len(cluster.writes()) == writes


def test_what_was_given_can_be_left_for_a_later_time() -> None:
    cluster = new_cluster(2)
    before = cluster.resources()
    with acting(cluster) as target:
        target.apply({"target_replicas": 4.0, "target_cpu_limit_cores": 2.0, "target_memory_limit_mib": 256.0})
        for _ in range(2):
            with pytest.raises(ActuatorError, match=(
                    r"\(`assay release` gives it back\): cpu of pod .*, replicas")) as raised:
                target.restore(lowering=False)
            assert raised.value.kind == "refused" and cluster.replicas == 4
            assert cluster.resources()["limits"] == {**before["limits"], "cpu": "2"}
        target.restore()
        assert (cluster.replicas, cluster.resources()) == (2, before)


def test_a_new_process_restores_what_a_killed_one_found_first() -> None:
    cluster = new_cluster(2)
    with serve(cluster) as url:
        killed = actuator(url)
        killed.acquire(ME)
        killed.apply(THREE)
        later = actuator(url)
        assert later.acquire(ME) == ""
        later.apply(THREE | {"target_replicas": 7.0})
        later.restore()
    assert cluster.replicas == 2 and {cluster.resources(index)["limits"]["cpu"] for index in range(2)} == {"1"}


@pytest.mark.parametrize("last", range(1, 8))
def test_a_kill_at_any_point_of_an_apply_can_be_restored(last: int) -> None:
    """The process dies after its `last`-th write of: 3 rehearsals, the Lease, 2 pods, the scale."""
    cluster = new_cluster(2)
    with serve(cluster) as url:
        killed = actuator(url)
        killed.acquire(ME)
        killed.apply({"target_cpu_limit_cores": 0.5, "target_replicas": 2.0})

        class Killed(BaseException):
            pass

        call, writes = killed._api.call, 0

        def dying(verb, *arguments, **named):
            nonlocal writes
            answer = call(verb, *arguments, **named)
            if verb not in ("get", "list"):
                writes += 1
                if writes == last:
                    raise Killed
            return answer

        killed._api.call = dying
        with pytest.raises(Killed):
            killed.apply({"target_cpu_limit_cores": 2.0, "target_replicas": 1.0})
        later = actuator(url)
        later.acquire(ME)
        later.restore()
    assert cluster.replicas == 2
    old = [pod for pod in cluster.pods() if int(pod["metadata"]["name"][-4:]) < 110]
    assert old and {pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] for pod in old} == {"1"}


def test_restore_leaves_what_somebody_else_changed_and_says_so() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 2.0, "target_replicas": 3.0})
        cluster.scale_to(5)
        with pytest.raises(ActuatorError, match="somebody else changed them: replicas") as conflict:
            target.restore()
        assert conflict.value.kind == "conflict" and conflict.value.partly == {"target_cpu_limit_cores": 1.0}
        assert cluster.replicas == 5 and cluster.resources()["limits"]["cpu"] == "1"
        target.restore()


@pytest.mark.parametrize("lowering", [True, False])
def test_a_limit_that_was_set_where_none_was_found_is_named_and_the_rest_restored(lowering: bool) -> None:
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 0.8})
        def found_none(item: dict) -> None:
            found = json.loads(item["metadata"]["annotations"][ANNOTATION])
            del found["pods"][cluster.pods()[0]["metadata"]["uid"]]["limits"]["cpu"]
            item["metadata"]["annotations"][ANNOTATION] = json.dumps(found)
        cluster.edit("leases", "assay-web", found_none)
        name = cluster.pods()[0]["metadata"]["name"]
        with pytest.raises(ActuatorError, match=f"a pod that runs cannot lose one .*: cpu of pod {name}$") as refused:
            target.restore(lowering=lowering)
        assert (refused.value.kind, refused.value.partly) == ("refused", {"target_cpu_limit_cores": 1.0})
        assert cores_of(cluster) == ["800m", "1"] and target.restore() is False  # nothing could be done later


def test_a_change_that_is_refused_keeps_no_other_from_being_restored() -> None:
    """Kubernetes 1.33 does not lower memory in place; of one pod of two, that of the other was lowered by us."""
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_replicas": 4.0, "target_cpu_limit_cores": 1.5, "target_memory_limit_mib": 600.0})
        cluster.memory_lowered = False
        names = [f"memory of pod {pod['metadata']['name']}" for pod in cluster.pods()[:2]]
        for partly in ({"target_cpu_limit_cores": 1.0, "target_replicas": 2.0}, {}):
            with pytest.raises(ActuatorError, match="memory limits cannot be decreased") as refused:
                target.restore()
            assert (refused.value.kind, refused.value.partly) == ("refused", partly)
            assert str(refused.value).endswith(f": {', '.join(names)}")
            assert cluster.replicas == 2 and cores_of(cluster) == ["1", "1"]
        cluster.memory_lowered = True
        assert target.restore() is True
    assert [cluster.resources(index) for index in range(2)] == [SHARED] * 2


def test_a_container_that_was_renamed_keeps_nothing_from_being_restored() -> None:
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_replicas": 4.0, "target_cpu_limit_cores": 1.5})
        changed_template(cluster, lambda container: container.update(name="web2"))
        assert target.restore() is True
    assert cluster.replicas == 2 and cores_of(cluster) == ["1", "1"]


@pytest.mark.parametrize("noticed", [False, True])
def test_what_was_found_is_kept_where_somebody_deletes_the_lease(noticed: bool) -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.5})
        del cluster.objects["leases", "assay-web"]
        if noticed:
            with pytest.raises(ActuatorError, match="held by nobody"):
                target.apply({"target_cpu_limit_cores": 1.6})
        assert target.acquire(ME) == ""
        target.apply({"target_cpu_limit_cores": 1.7})
        assert target.restore() is True
    assert cores_of(cluster) == ["1", "1"]


def test_what_was_found_of_a_pod_that_does_not_run_for_a_while_is_kept() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.5})
        name = cluster.pods()[0]["metadata"]["name"]
        cluster.edit("pods", name, lambda pod: pod["status"].update(phase="Unknown"))
        target.apply({"target_cpu_limit_cores": 1.6})
        cluster.edit("pods", name, lambda pod: pod["status"].update(phase="Running"))
        target.restore()
    assert cores_of(cluster) == ["1", "1"]


@pytest.mark.parametrize("comes_back", ["before", "after", "never"])
def test_a_pod_that_does_not_run_is_set_back_with_the_others(comes_back: str) -> None:
    """The server takes a resize of it, and its node carries it out once it is heard of."""
    cluster = new_cluster(2)
    found = cluster.resources()
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.5})
        name = cluster.pods()[0]["metadata"]["name"]
        cluster.edit("pods", name, lambda pod: pod["status"].update(phase="Unknown"))
        target.apply({"target_cpu_limit_cores": 1.6})
        assert cores_of(cluster) == ["1500m", "1600m"]
        if comes_back == "before":
            cluster.before.append(("resize.*assay$", lambda cluster: cluster.edit(
                "pods", name, lambda pod: pod["status"].update(phase="Running"))))
        assert target.restore() is True
        if comes_back == "after":
            cluster.edit("pods", name, lambda pod: pod["status"].update(phase="Running"))
            assert target.present()["cpu_limit_cores"] == 1.0
    assert [cluster.resources(index) for index in range(2)] == [found] * 2


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("label", ["app", "pod-template-hash"])
def test_a_pod_that_the_deployment_gave_up_is_set_back_with_the_others(label: str, new_process: bool) -> None:
    """As somebody takes one out of a service to look into it: until the end it has what was set last of it."""
    cluster = new_cluster(2)
    found = cluster.resources()
    with serve(cluster) as url:
        target = actuator(url)
        target.acquire(ME)
        target.apply({"target_cpu_limit_cores": 1.5})
        name = cluster.relabel(**{label: "debug"})
        target.present()
        target.apply({"target_cpu_limit_cores": 1.6, "target_replicas": 3.0})
        assert limits_of(cluster, name)["cpu"] == "1500m" and sorted(cores_of(cluster)) == [
            "1", "1500m", "1600m", "1600m"]
        if new_process:
            target = actuator(url)
            target.acquire(ME)
        target.apply({"target_cpu_limit_cores": 1.7})
        cluster.before.append(("resize.*assay$", lambda cluster: cluster.touch("pods", name)))
        assert target.restore() is True
    assert [cluster.resources(index) for index in range(len(cluster.pods()))] == [found] * 3
    assert cluster.replicas == 2


def test_of_a_pod_that_was_given_up_and_changed_by_somebody_else_nothing_is_set_back() -> None:
    cluster = new_cluster(2, SHARED)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.5})
        name = cluster.relabel(app="debug")
        cluster.resize_by_hand(limits={"cpu": "3"}, requests={"cpu": "2"})
        with pytest.raises(ActuatorError, match=f"changed them: cpu of pod {name}, cpu request of pod {name}$"):
            target.restore()
        assert limits_of(cluster, name)["cpu"] == "3"


def test_a_pod_that_is_gone_is_looked_for_once() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.5})
        del cluster.objects["pods", cluster.pods()[0]["metadata"]["name"]]
        for cores in (1.6, 1.7, 1.8):
            target.apply({"target_cpu_limit_cores": cores})
        target.restore()
    assert len([line for line, _ in cluster.requests if "fieldSelector" in line]) == 1


def test_what_an_earlier_version_noted_without_names_is_set_back() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 1.5})
        def without_names(item: dict) -> None:
            found = json.loads(item["metadata"]["annotations"][ANNOTATION])
            del found["names"]
            item["metadata"]["annotations"][ANNOTATION] = json.dumps(found)
        cluster.edit("leases", "assay-web", without_names)
        assert target.restore() is True
    assert cores_of(cluster) == ["1", "1"]


def test_another_deployment_of_the_same_name_has_nothing_to_be_restored() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply({"target_replicas": 3.0})
        cluster.edit("deployments", DEPLOYMENT, lambda item: item["metadata"].update(uid="another"))
        assert target.restore() is False
        assert cluster.replicas == 3


def test_a_memory_that_somebody_else_wrote_is_refused() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        cluster.edit("leases", "assay-web", lambda item: item["metadata"].update(annotations={ANNOTATION: "{}"}))
        with pytest.raises(ActuatorError, match=f"the annotation {ANNOTATION} of the lease must be what") as refused:
            target.apply({"target_replicas": 3.0})
        assert refused.value.kind == "refused" and cluster.replicas == 2


# --- rights


def test_the_manifest_grants_what_is_used_and_nothing_else() -> None:
    """The server enforces it in all tests; here everything is done once, so that nothing is granted in vain."""
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.acquire(ME)
        target.present()
        target.apply(THREE)
        target.restore()
        target.release(ME)
    assert cluster.used == granted(MANIFEST)


def test_the_manifest_binds_the_role_to_the_account_and_is_not_applied_before_it_is_filled_in() -> None:
    account, role, binding = yaml.safe_load_all(MANIFEST.read_text())
    assert {item["metadata"]["name"] for item in (account, role, binding)} == {"assay-DEPLOYMENT"}  # no valid name
    assert {item["metadata"]["namespace"] for item in (account, role, binding)} == {"NAMESPACE"}
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", role["metadata"]["name"])
    (subject,) = binding["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "NAMESPACE"}


@pytest.mark.parametrize("rule", sorted(granted(MANIFEST)))
def test_a_missing_right_is_named_as_a_rule(rule: tuple[str, str, str, str]) -> None:
    cluster = new_cluster(2)
    assert cluster.rules is not None
    cluster.rules -= {rule}
    group, resource, verb, _ = rule
    with serve(cluster) as url, pytest.raises(ActuatorError) as forbidden:
        target = actuator(url)
        target.acquire(ME)
        target.apply(dict.fromkeys(CONTROLS, 5.0))
    assert forbidden.value.kind == "forbidden"
    named = f'apiGroups ["{group}"], resources ["{resource}"], verbs ["{verb}"] in namespace shop'
    assert named in str(forbidden.value)
