"""The lease: one acts, whatever clocks say, whoever is killed or asleep."""

import threading

import pytest

from serving.actuators.actuator import ActuatorError
from serving.actuators.kubernetes import KubernetesDeployment
from tests.serving.actuators.kubernetes_server import Cluster, Fault, new_cluster, serve
from tests.serving.actuators.kubernetes_target import Clock, actuator

LEASE = ("leases", "assay-web")


def spec(cluster: Cluster) -> dict:
    found: dict = cluster.objects[LEASE]["spec"]
    return found


def pair(url: str, lease_s: int = 10) -> tuple[KubernetesDeployment, Clock, KubernetesDeployment, Clock]:
    """Two controllers, each with a clock of its own."""
    first, second = Clock(), Clock()
    second.now = 77.0
    return actuator(url, lease_s=lease_s, clock=first), first, actuator(url, lease_s=lease_s, clock=second), second


def test_the_first_one_has_it_renews_it_and_gives_it_back() -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        a, _, b, _ = pair(url)
        assert a.acquire("a") == "" and b.acquire("b") == "a"
        begun, renewed = spec(cluster)["acquireTime"], spec(cluster)["renewTime"]
        assert a.acquire("a") == "" and spec(cluster)["renewTime"] > renewed and spec(cluster)["acquireTime"] == begun
        assert (spec(cluster)["holderIdentity"], spec(cluster)["leaseDurationSeconds"]) == ("a", 10)
        b.release("b")
        assert b.acquire("b") == "a"
        a.release("a")
        assert b.acquire("b") == "" and a.acquire("a") == "b" and spec(cluster)["leaseTransitions"] == 1


def test_one_that_is_not_renewed_runs_out_after_its_duration_by_the_watchers_own_clock() -> None:
    with serve(new_cluster()) as url:
        a, _, b, clock = pair(url)
        a.acquire("a")
        assert b.acquire("b") == "a"
        clock.now += 9.9
        assert b.acquire("b") == "a"
        clock.now += 0.2
        assert b.acquire("b") == ""


def test_a_renewal_starts_the_watchers_count_again() -> None:
    with serve(new_cluster()) as url:
        a, _, b, clock = pair(url)
        for _ in range(4):
            a.acquire("a")
            assert b.acquire("b") == "a"
            clock.now += 9.0


@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", None])
def test_what_the_wall_clocks_say_neither_steals_a_lease_nor_keeps_it(renewed: str | None) -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        a, _, b, clock = pair(url)
        a.acquire("a")
        cluster.edit(*LEASE, lambda item: item["spec"].update(renewTime=renewed))
        assert b.acquire("b") == "a"
        clock.now += 10.0
        assert b.acquire("b") == ""


def test_a_process_that_slept_past_its_lease_sets_nothing() -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        a, clock, _, _ = pair(url)
        with pytest.raises(ActuatorError, match="must be held before anything is set"):
            a.apply({"target_replicas": 5.0})
        a.acquire("a")
        clock.now += 10.0
        for attempt in (lambda: a.apply({"target_replicas": 5.0}), a.restore):
            with pytest.raises(ActuatorError, match="ran out: it was not renewed within 10 s") as lost:
                attempt()
            assert lost.value.kind == "conflict"
    assert cluster.replicas == 3


def test_a_lease_that_runs_out_between_two_pods_stops_the_second() -> None:
    cluster = new_cluster(2)
    with serve(cluster) as url:
        a, clock, _, _ = pair(url)
        a.acquire("a")
        cluster.before.append(("resize.*assay$", lambda _: setattr(clock, "now", clock.now + 20)))
        with pytest.raises(ActuatorError, match=r"ran out.*1 of 2 changes") as lost:
            a.apply({"target_cpu_limit_cores": 2.0})
    assert lost.value.partly == {"target_cpu_limit_cores": 2.0}
    assert [cluster.resources(index)["limits"]["cpu"] for index in range(2)] == ["2", "1"]


def test_a_holder_whose_lease_was_taken_finds_out_before_it_sets_anything() -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        a, _, _, _ = pair(url)
        a.acquire("a")
        cluster.edit(*LEASE, lambda item: item["spec"].update(holderIdentity="b"))
        with pytest.raises(ActuatorError, match="held by b, no longer by a; nothing is set") as lost:
            a.apply({"target_replicas": 5.0})
    assert lost.value.kind == "conflict" and cluster.replicas == 3 and not cluster.writes()


def test_a_lease_that_was_deleted_is_made_again() -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        a, _, _, _ = pair(url)
        a.acquire("a")
        del cluster.objects[LEASE]
        assert a.acquire("a") == ""
        del cluster.objects[LEASE]
        a.release("a")
        with pytest.raises(ActuatorError, match="must be held"):
            a.apply({"target_replicas": 5.0})


@pytest.mark.parametrize("existing", [False, True])
def test_two_that_reach_for_it_at_once_get_one(existing: bool) -> None:
    """Both read before either writes: the second is told so (409), and looks again."""
    cluster = new_cluster()
    with serve(cluster) as url:
        a, _, b, _ = pair(url)
        if existing:
            a.acquire("old")
            a.release("old")
        got = []
        cluster.before.append(("(POST|PUT).*leases", lambda _: got.append(b.acquire("b"))))
        cluster.lock = _NoLock()  # b asks while a's request is being handled
        got.append(a.acquire("a"))
    assert got == ["", "b"] and spec(cluster)["holderIdentity"] == "b"


class _NoLock:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_many_that_reach_for_it_at_once_get_one() -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        targets = {f"c{number}": actuator(url) for number in range(6)}
        start, got = threading.Barrier(len(targets)), {}

        def reach(holder: str) -> None:
            start.wait()
            got[holder] = targets[holder].acquire(holder)

        threads = [threading.Thread(target=reach, args=(holder,)) for holder in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    winners = [holder for holder, answer in got.items() if answer == ""]
    assert len(winners) == 1 and set(got.values()) == {"", *winners} and spec(cluster)["holderIdentity"] == winners[0]


def test_two_that_both_believe_they_have_it_do_not_both_scale() -> None:
    """The last line of defence, behind the lease: resourceVersion."""
    cluster = new_cluster()
    with serve(cluster) as url:
        a, b = actuator(url), actuator(url)
        a.acquire("a")

        def other_scales(_: Cluster) -> None:
            cluster.edit(*LEASE, lambda item: item["spec"].update(holderIdentity="b"))
            b.acquire("b")
            b.apply({"target_replicas": 7.0})

        cluster.lock = _NoLock()
        cluster.before.append(("scale.*assay$", other_scales))
        with pytest.raises(ActuatorError, match="3 when they were read, 7 now") as conflict:
            a.apply({"target_replicas": 5.0})
    assert conflict.value.kind == "conflict" and cluster.replicas == 7


@pytest.mark.parametrize("fault", [Fault("leases", 500), Fault("leases", cut=True), Fault("leases", 403)])
def test_where_nobody_can_say_who_has_it_it_raises(fault: Fault) -> None:
    cluster = new_cluster()
    cluster.faults.append(fault)
    with serve(cluster) as url, pytest.raises(ActuatorError):
        actuator(url).acquire("a")


@pytest.mark.parametrize("action", ["acquire", "apply", "release"])
def test_a_lease_that_changes_all_the_time_is_given_up(action: str) -> None:
    cluster = new_cluster()
    with serve(cluster) as url:
        a = actuator(url)
        a.acquire("a")
        cluster.before += [("PUT.*leases", lambda other: other.edit(*LEASE, lambda item: None))] * 50
        attempts = {"acquire": lambda: a.acquire("a"), "apply": lambda: a.apply({"target_replicas": 5.0}),
                    "release": lambda: a.release("a")}
        with pytest.raises(ActuatorError, match="changed 5 times") as conflict:
            attempts[action]()
        assert conflict.value.kind == "conflict" and cluster.replicas == 3
