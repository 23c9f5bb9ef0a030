"""What the Kubernetes actuator makes of refusals, silence and of others that write at the same time."""

import socket
from collections.abc import Callable

import pytest

from feature_store.errors import InputError
from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import PODS, Api, cluster_configuration, kubernetes_client
from serving.actuators.kubernetes import KubernetesDeployment
from tests.serving.actuators.kubernetes_server import DEPLOYMENT, Cluster, Fault, new_cluster, serve
from tests.serving.actuators.kubernetes_target import ME, Clock, acting, actuator, api

TARGETS = {"target_replicas": 4.0, "target_cpu_limit_cores": 2.0}
QUOTA = 'pods "web-1" is forbidden: exceeded quota: team, requested: limits.cpu=1, limited: limits.cpu=3'
WEBHOOK = 'admission webhook "policy.example.org" denied the request: at most 1 core'


def failed(cluster: Cluster, *faults: Fault, **arguments: float) -> ActuatorError:
    """What an apply of TARGETS raises."""
    with acting(cluster, **arguments) as target:
        cluster.faults += faults
        with pytest.raises(ActuatorError) as error:
            target.apply(TARGETS)
        assert "\n" not in str(error.value)
    return error.value


# --- refusals


@pytest.mark.parametrize(("status", "kind", "message", "said"), [
    (403, "refused", QUOTA, "exceeded quota: team"),
    (403, "refused", 'pods "web-1" is forbidden: maximum cpu usage per Container is 1, but limit is 2', "maximum cpu"),
    (400, "refused", WEBHOOK, "at most 1 core"),
    (403, "refused", WEBHOOK, "at most 1 core"),
    (500, "refused", WEBHOOK, "at most 1 core"),
    (400, "refused", 'admission webhook "policy.example.org" does not support dry run', "does not support dry run"),
    (422, "refused", "Pod is invalid: spec.containers[0].resources: Forbidden: memory limits cannot be decreased",
     "memory limits cannot be decreased"),
    (500, "unreachable", 'failed calling webhook: admission webhook "policy.example.org" timed out', "timed out"),
    (401, "forbidden", "Unauthorized", "its token is missing, wrong or has expired"),
])
@pytest.mark.parametrize("on", ["resize", "scale"])
def test_what_the_rehearsal_refuses_leaves_nothing_half_applied(
    status: int, kind: str, message: str, said: str, on: str
) -> None:
    cluster = new_cluster(3)
    error = failed(cluster, Fault(f"{on}.*dryRun=All", status, message))
    assert (error.kind, error.partly) == (kind, {}) and said in str(error)
    assert cluster.writes() == [] and cluster.replicas == 3


def test_every_change_is_rehearsed_before_any_is_carried_out() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        target.apply(TARGETS)
    patches = [line for line, _ in cluster.requests if line.startswith("PATCH")]
    assert ["dryRun=All" in line for line in patches] == [True] * 3 + [False] * 3
    assert [line.replace("&dryRun=All", "") for line in patches[:3]] == patches[3:]


def test_throttled_does_not_wait_itself() -> None:
    cluster = new_cluster(2)
    error = failed(cluster, Fault("scale", 429, "too many requests", headers={"Retry-After": "30"}))
    assert error.kind == "throttled"
    assert len([line for line, _ in cluster.requests if "/scale?" in line]) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_that_is_broken_is_unreachable_and_not_asked_twice(status: int) -> None:
    cluster = new_cluster(2)
    broken = Fault("GET.*deployments", status, "etcdserver: leader changed", headers={"Retry-After": "1"})
    error = failed(cluster, broken)
    assert error.kind == "unreachable" and "etcdserver: leader changed" in str(error)
    assert len([line for line, _ in cluster.requests if line.startswith("GET /apis/apps")]) == 2  # one at the start


@pytest.mark.parametrize(("on", "status", "doubt"), [
    ("GET.*pods", 504, False), ("dryRun=All", 504, False), ("scale.*assay$", 504, True), ("scale.*assay$", 422, False)])
def test_a_write_that_a_broken_server_may_have_carried_out_is_said_to_be(on: str, status: int, doubt: bool) -> None:
    error = failed(new_cluster(), Fault(on, status, "timed out"))
    assert ("it may have been carried out" in str(error)) == doubt


def test_a_deployment_that_is_gone_is_gone() -> None:
    cluster = new_cluster()
    with acting(cluster) as target:
        del cluster.objects["deployments", DEPLOYMENT]
        for attempt in (target.present, lambda: target.apply(TARGETS)):
            with pytest.raises(ActuatorError, match=r'deployments\.apps "web" not found') as gone:
                attempt()
            assert gone.value.kind == "gone"


def test_a_server_without_the_resize_of_pods_is_refused_with_the_version_that_has_it() -> None:
    cluster = new_cluster()
    cluster.resize_served = False
    error = failed(cluster)
    assert error.kind == "refused" and "Kubernetes 1.33 or newer" in str(error) and cluster.replicas == 3


@pytest.mark.parametrize(("text", "status"), [("<html>login</html>", 200), ("[]", 200), ("<html>bad</html>", 502)])
def test_an_answer_of_something_else_is_unreachable(text: str, status: int) -> None:
    error = failed(new_cluster(), Fault("GET.*deployments", 0 if status == 200 else status, text, text=True))
    assert error.kind == "unreachable" and text.strip("[]") in str(error)


# --- silence


@pytest.mark.parametrize(("on", "doubt"), [("GET.*pods", False), ("dryRun=All", False), ("scale.*assay$", True)])
def test_a_read_that_takes_too_long_is_unreachable(on: str, doubt: bool) -> None:
    error = failed(new_cluster(), Fault(on, delay_s=0.6), read_s=0.2)
    assert error.kind == "unreachable" and ("it may have been carried out" in str(error)) == doubt


@pytest.mark.parametrize(("on", "doubt"), [("GET.*pods", False), ("scale.*assay$", True)])
def test_an_answer_that_is_cut_is_unreachable(on: str, doubt: bool) -> None:
    error = failed(new_cluster(), Fault(on, cut=True))
    assert error.kind == "unreachable" and ("it may have been carried out" in str(error)) == doubt


def test_a_write_whose_answer_was_lost_can_be_repeated_and_restored() -> None:
    cluster = new_cluster(2)
    with acting(cluster) as target:
        cluster.faults.append(Fault("scale.*assay$", cut=True, times=1))
        with pytest.raises(ActuatorError):
            target.apply(TARGETS)
        assert target.present()["replicas"] == 4.0  # it was carried out
        assert target.apply(TARGETS).values["target_replicas"] == 4.0
        target.restore()
    assert cluster.replicas == 2 and cluster.resources()["limits"]["cpu"] == "1"


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ActuatorError, match="no whole answer from the API server") as error:
            actuator(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert error.value.kind == "unreachable"


def test_a_server_that_takes_no_connection_is_given_up_after_the_connect_time_out() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(ActuatorError, match=r"connect timeout=0\.2") as error:
            api(f"http://127.0.0.1:{full.getsockname()[1]}", connect_s=0.2).call("list", PODS)
    assert error.value.kind == "unreachable"


# --- carried out, and answered otherwise

TIMEOUT = "Timeout: request did not complete within requested timeout - context deadline exceeded"


@pytest.mark.parametrize("status", [500, 502, 504])
@pytest.mark.parametrize("on", ["scale.*assay$", "resize.*assay$"])
def test_a_write_that_stands_is_carried_out_whatever_was_answered(on: str, status: int) -> None:
    cluster = new_cluster(2)
    found = cluster.resources()
    with acting(cluster) as target:
        cluster.faults.append(Fault(on, status, TIMEOUT, carried_out="", times=1))
        assert dict(target.apply(TARGETS).values) == TARGETS
        assert cluster.replicas == 4 and [cluster.resources(index)["limits"]["cpu"] for index in range(2)] == ["2", "2"]
        cluster.faults.append(Fault(on, status, TIMEOUT, carried_out="", times=1))
        assert target.restore() is True
    assert cluster.replicas == 2 and [cluster.resources(index) for index in range(2)] == [found] * 2


@pytest.mark.parametrize("when", ["GET.*leases", "{}.*dryRun", "{}.*assay$"])
@pytest.mark.parametrize("what", ["scale", "resize"])
def test_a_write_that_is_carried_out_after_its_answer_is_not_somebody_elses(what: str, when: str) -> None:
    """Between what is read for a decision and what is read to set it, and between that and what is set."""
    cluster = new_cluster(2)
    with acting(cluster) as target:
        cluster.faults.append(Fault(f"{what}.*assay$", 504, TIMEOUT, carried_out=when.format(what), times=1))
        with pytest.raises(ActuatorError, match="it may have been carried out"):
            target.apply(TARGETS)
        assert target.present()["replicas"] == 2.0 and target.acquire(ME) == ""
        later = {**TARGETS, "target_replicas": 5.0}
        assert dict(target.apply(later).values) == later
        assert cluster.replicas == 5 and cluster.before == []
        assert target.restore() is True
    assert cluster.replicas == 2 and [cluster.resources(index)["limits"]["cpu"] for index in range(2)] == ["1", "1"]


def test_a_write_that_is_carried_out_after_another_decision_is_given_back() -> None:
    cluster = new_cluster(1)
    with acting(cluster) as target:
        cluster.faults.append(Fault("resize.*assay$", 504, TIMEOUT, carried_out="scale.*assay$", times=1))
        with pytest.raises(ActuatorError, match="it may have been carried out"):
            target.apply({"target_cpu_limit_cores": 2.0})
        target.present()
        target.apply({"target_cpu_limit_cores": 1.0, "target_replicas": 2.0})
        assert cluster.resources()["limits"]["cpu"] == "2"
        assert target.restore() is True
    assert cluster.resources()["limits"]["cpu"] == "1"


@pytest.mark.parametrize("lands", ["scale.*assay$", "never"])
def test_what_an_unanswered_write_may_still_set_keeps_the_note_of_what_was_found(lands: str) -> None:
    """It comes while replicas are set back, and the limit is as found when it is looked at; or it may come later."""
    cluster = new_cluster(1)
    with serve(cluster) as url:
        target = actuator(url)
        target.acquire(ME)
        target.apply({"target_replicas": 2.0})
        cluster.faults.append(Fault("resize.*assay$", 504, TIMEOUT, carried_out=lands, times=1))
        with pytest.raises(ActuatorError, match="it may have been carried out"):
            target.apply({"target_cpu_limit_cores": 2.0})
        name = cluster.pods()[0]["metadata"]["name"]
        with pytest.raises(ActuatorError, match=f"may still come .*: cpu of pod {name}$") as late:
            target.restore()
        assert (late.value.kind, late.value.partly) == ("unreachable", {"target_replicas": 1.0})
        assert cluster.resources()["limits"]["cpu"] == ("1" if lands == "never" else "2")
        later = actuator(url)
        later.acquire(ME)
        assert later.restore() is True
    assert cluster.resources()["limits"]["cpu"] == "1"


def test_a_write_is_in_doubt_no_longer_than_a_server_works_at_it() -> None:
    cluster, clock = new_cluster(1), Clock()
    with acting(cluster, clock=clock) as target:
        cluster.faults.append(Fault("resize.*assay$", 504, TIMEOUT, times=1))
        with pytest.raises(ActuatorError, match="it may have been carried out"):
            target.apply({"target_cpu_limit_cores": 2.0})
        clock.now += 60
        target.acquire(ME)
        assert target.restore() is True


@pytest.mark.parametrize("settled", [False, True])
def test_what_somebody_else_sets_is_a_conflict_where_a_write_is_in_doubt_too(settled: bool) -> None:
    """Once the Deployment has another version, the server takes no write of the older one any more."""
    cluster = new_cluster(2)
    with acting(cluster) as target:
        cluster.faults.append(Fault("scale.*assay$", 504, TIMEOUT, times=1))
        with pytest.raises(ActuatorError, match="it may have been carried out"):
            target.apply(TARGETS)
        if settled:
            touch_deployment(cluster)
        target.present()
        cluster.scale_to(4 if settled else 9)
        with pytest.raises(ActuatorError, match=r"changed by somebody else since it was read \(replicas\)"):
            target.apply(TARGETS)


@pytest.mark.parametrize("taken", [False, True])
def test_a_lease_that_was_written_is_held_whatever_was_answered(taken: bool) -> None:
    cluster = new_cluster(2)
    with serve(cluster) as url:
        target = actuator(url)
        if taken:
            assert target.acquire("another") == ""
            target.release("another")
        cluster.faults.append(Fault("(POST|PUT).*leases", 504, TIMEOUT, carried_out="", times=1))
        assert target.acquire(ME) == ""
        cluster.faults.append(Fault("PUT.*leases", 504, TIMEOUT, carried_out="", times=1))
        assert dict(target.apply(TARGETS).values) == TARGETS
        cluster.faults.append(Fault("PUT.*leases", 504, TIMEOUT, carried_out="", times=1))
        assert target.restore() is True
        cluster.faults.append(Fault("PUT.*leases", 504, TIMEOUT, carried_out="", times=1))
        target.release(ME)
        assert actuator(url).acquire("another") == ""


@pytest.mark.parametrize("on", ["POST.*leases", "GET.*leases/"])
def test_a_lease_that_nobody_can_say_to_be_written_is_not_held(on: str) -> None:
    """The write is not carried out; or it is, and cannot be read."""
    cluster = new_cluster(2)
    with serve(cluster) as url:
        target = actuator(url)
        cluster.faults.append(Fault("POST.*leases", 504, TIMEOUT, carried_out=None if on[0] == "P" else "", times=1))
        if on[0] == "G":
            cluster.faults.append(Fault(on, 504, TIMEOUT, after=1))
        with pytest.raises(ActuatorError, match=r"create leases: HTTP 504.*it may have been carried out"):
            target.acquire(ME)
        with pytest.raises(ActuatorError, match="must be held"):
            target.apply(TARGETS)


# --- half-applied


def test_a_third_pod_that_fails_leaves_two_and_says_which() -> None:
    cluster = new_cluster(4)
    error = failed(cluster, Fault("resize.*assay$", 500, "node is gone", after=2))
    assert error.kind == "unreachable" and error.partly == {"target_cpu_limit_cores": 2.0}
    assert "2 of 4 changes were carried out before" in str(error)
    assert [cluster.resources(index)["limits"]["cpu"] for index in range(4)] == ["2", "2", "1", "1"]
    assert cluster.replicas == 4


def test_what_was_half_applied_is_restored() -> None:
    cluster = new_cluster(3)
    with acting(cluster) as target:
        target.apply({"target_cpu_limit_cores": 0.5})
        cluster.faults.append(Fault("resize.*assay$", 500, after=1, times=1))
        with pytest.raises(ActuatorError):
            target.apply(TARGETS)
        assert [cluster.resources(index)["limits"]["cpu"] for index in range(3)] == ["2", "500m", "500m"]
        cluster.faults.append(Fault("resize.*assay$", 500, after=1, times=1))
        with pytest.raises(ActuatorError):
            target.apply({"target_cpu_limit_cores": 3.0})
        target.restore()
    assert [cluster.resources(index)["limits"]["cpu"] for index in range(3)] == ["1", "1", "1"]


@pytest.mark.parametrize(("fault", "sent"), [
    (Fault("resize.*assay$", 500, "node is gone", times=1), 4), (Fault("resize.*assay$", cut=True, times=1), 1),
    (Fault("resize.*assay$", 429, "later", times=1), 1)])
def test_a_restore_goes_on_after_a_failure_but_where_the_rest_would_only_wait(fault: Fault, sent: int) -> None:
    cluster = new_cluster(3)
    with acting(cluster) as target:
        target.apply(TARGETS)
        before = len(cluster.writes())
        cluster.faults.append(fault)
        with pytest.raises(ActuatorError, match="`assay release` tries again"):
            target.restore()
        assert len(cluster.writes()) - before == sent
        target.restore()
    assert cluster.replicas == 3 and [cluster.resources(index)["limits"]["cpu"] for index in range(3)] == ["1"] * 3


def test_a_restore_that_loses_the_lease_sends_nothing_more() -> None:
    cluster, clock = new_cluster(3), Clock()
    with acting(cluster, clock=clock) as target:
        target.apply(TARGETS)
        before = len(cluster.writes())
        cluster.before.append(("resize.*assay$", lambda _: setattr(clock, "now", clock.now + 60)))
        with pytest.raises(ActuatorError, match="ran out") as lost:
            target.restore()
        assert lost.value.kind == "conflict" and len(cluster.writes()) - before == 1


def test_a_scale_that_fails_leaves_the_limits_set() -> None:
    error = failed(new_cluster(2), Fault("scale.*assay$", 503, "apiserver is shutting down"))
    assert error.partly == {"target_cpu_limit_cores": 2.0} and error.kind == "unreachable"


def test_a_pod_that_goes_away_meanwhile_is_no_error() -> None:
    cluster = new_cluster(3)
    def stop(cluster: Cluster) -> None:
        del cluster.objects["pods", cluster.pods()[1]["metadata"]["name"]]
    with acting(cluster) as target:
        cluster.before.append(("resize.*assay$", stop))
        target.apply({"target_cpu_limit_cores": 2.0})
    assert [cluster.resources(index)["limits"]["cpu"] for index in range(2)] == ["2", "2"]


# --- others that write at the same time


def touch_deployment(cluster: Cluster) -> None:
    cluster.touch("deployments", DEPLOYMENT)


def touch_pods(cluster: Cluster) -> None:
    for pod in cluster.pods():
        cluster.touch("pods", pod["metadata"]["name"])


@pytest.mark.parametrize("on", ["scale.*dryRun", "scale.*assay$", "resize.*dryRun", "resize.*assay$"])
def test_a_status_that_changed_meanwhile_is_read_again(on: str) -> None:
    cluster = new_cluster(3)
    with acting(cluster) as target:
        cluster.before += [(on, touch_deployment), (on, touch_pods)]
        assert dict(target.apply(TARGETS).values) == TARGETS
    assert cluster.replicas == 4 and cluster.resources()["limits"]["cpu"] == "2"


@pytest.mark.parametrize(("on", "change", "said"), [
    ("scale.*dryRun", lambda cluster: cluster.scale_to(9), "3 when they were read, 9 now"),
    ("scale.*assay$", lambda cluster: cluster.scale_to(9), "3 when they were read, 9 now"),
    ("resize.*assay$", lambda cluster: resize_by_hand(cluster), "somebody else set the resources of pod"),
])
def test_what_somebody_else_set_meanwhile_is_a_conflict(on: str, change: Callable[[Cluster], None], said: str) -> None:
    cluster = new_cluster(3)
    with acting(cluster) as target:
        cluster.before.append((on, change))
        with pytest.raises(ActuatorError, match=said) as conflict:
            target.apply(TARGETS)
    assert conflict.value.kind == "conflict" and cluster.replicas in (3, 9)


def resize_by_hand(cluster: Cluster) -> None:
    cluster.edit("pods", cluster.pods()[0]["metadata"]["name"],
                 lambda pod: pod["spec"]["containers"][0]["resources"]["limits"].update(cpu="7"))


def test_a_conflict_that_does_not_end_is_given_up() -> None:
    cluster = new_cluster(2)
    cluster.before += [("/scale", touch_deployment)] * 50
    error = failed(cluster)
    assert error.kind == "conflict" and "the object has been modified" in str(error)
    assert len([line for line, _ in cluster.requests if "/scale?" in line]) == 5


# --- how it connects


def test_a_kubeconfig_says_where(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    cluster = new_cluster(2)
    with serve(cluster) as url:
        path = tmp_path / "config"
        path.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, "
            f"clusters: [{{name: k, cluster: {{server: '{url}'}}}}], "
            "users: [{name: u, user: {token: secret}}], contexts: [{name: c, context: {cluster: k, user: u}}]}")
        target = KubernetesDeployment(Api(cluster_configuration(path), "shop"), DEPLOYMENT, "web")
        assert target.acquire(ME) == ""


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{apiVersion: v1, kind: Config, current-context: c}"])
def test_a_kubeconfig_that_is_none_is_said_in_one_line(tmp_path, monkeypatch, content: str | None) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match="expected a service account"):
        cluster_configuration(path)


def test_time_outs_must_be_times() -> None:
    with pytest.raises(InputError, match="time-outs must be above 0 s, got 0"):
        Api(kubernetes_client().client.Configuration(host="http://127.0.0.1:1"), "shop", connect_s=0)
