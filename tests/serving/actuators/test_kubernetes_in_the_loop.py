"""The control loop, acting on a Deployment: the same server, the real loop, shield and log."""

from dataclasses import dataclass, field
from typing import Any

from serving.actuators.actuator import Applied
from serving.actuators.kubernetes import KubernetesDeployment
from serving.control.shield import Budget, Limit, Shield
from tests.serving.actuators.kubernetes_server import DEPLOYMENT, Fault, new_cluster, serve
from tests.serving.actuators.kubernetes_target import actuator
from tests.serving.control.world import CONTROLS, SAFE, STEP_S, Said, World, keep, loop_of, measured

TARGETS = {"target_replicas": 4.0, "target_cpu_limit_cores": 1.5, "target_memory_limit_mib": 640.0}


@dataclass
class Deployed(World):
    """Measurements of the simulated application; what is set is a Deployment."""

    target: Any = field(default=None)

    def present(self) -> dict[str, float]:
        self.now += STEP_S
        return dict(self.target.present())

    def apply(self, targets: dict[str, float]) -> Applied:
        applied: Applied = self.target.apply(targets)
        return applied

    def acquire(self, holder: str) -> str:
        return str(self.target.acquire(holder))

    def release(self, holder: str) -> None:
        self.target.release(holder)


def test_the_loop_sets_a_deployment_and_says_why_where_it_cannot(tmp_path) -> None:
    cluster = new_cluster(3)
    with serve(cluster) as url:
        target: KubernetesDeployment = actuator(url)
        loop = loop_of(Deployed(target=target), tmp_path, Said(TARGETS))
        record = loop.step()
        while record.actor != "policy":
            record = loop.step()
        assert record.done == TARGETS and record.failure == "" and cluster.replicas == 4
        assert loop.step().done == TARGETS and cluster.resources(3)["limits"] == {"cpu": "1500m", "memory": "640Mi"}

        cluster.scale_to(3)
        cluster.faults.append(Fault("scale.*assay$", 429, "slow down", headers={"Retry-After": "1"}, times=1))
        record = loop.step()
        assert record.failure.startswith("actuator: patch deployments/scale web: HTTP 429: slow down")
        assert cluster.replicas == 3 and loop.step().done == TARGETS and cluster.replicas == 4

        reference = {"kind": "Deployment", "name": DEPLOYMENT}
        cluster.store("horizontalpodautoscalers", {"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": reference}})
        record = loop.step()
        assert record.actor == "nobody" and "the HorizontalPodAutoscaler hpa sets the replicas" in record.reason
        del cluster.objects["horizontalpodautoscalers", "hpa"]

        other = actuator(url)
        assert other.acquire("somebody else") == "me"
        loop.close()
        assert other.acquire("somebody else") == "" and "somebody else has the lease" in loop.step().reason


def test_a_new_pod_keeps_a_budget_of_cores_while_the_objective_is_missed(tmp_path) -> None:
    """Pods of 4 cores by their template, held at half of one; each step adds one that is ready before the next."""
    cluster = new_cluster(8, {key: {"cpu": "4", "memory": "512Mi"} for key in ("limits", "requests")})
    limits = [Limit(one.name, one.current, SAFE[one.name], one.whole) for one in CONTROLS]
    budget = Budget("cores", ("target_replicas", "target_cpu_limit_cores"), 8.0)
    with serve(cluster) as url:
        target: KubernetesDeployment = actuator(url)
        target.acquire("me")
        target.apply({"target_replicas": 8.0, "target_cpu_limit_cores": 0.5})
        policy = Said(lambda row: {**keep(row), "target_replicas": row["replicas"] + 1.0})
        loop = loop_of(measured(Deployed(target=target), 2.0), tmp_path, policy, shield=Shield(limits, [budget]))
        for _ in range(5):
            record = loop.step()
            cores = [4.0 if cluster.resources(index)["limits"]["cpu"] == "4" else 0.5 for index in range(8)]
            assert record.failure == "" and record.seen["cpu_limit_cores"] == 0.5 and sum(cores) == 4.0
    assert record.actor == "policy" and cluster.replicas > 9
