"""The policies of the comparison: one trained for each service, and policies that should not act.

Trained by `assay run` in the environment with the parameters fitted to the service's recorded telemetry (data/scaling),
with the number of instances and the memory fixed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.isolation import ROOT
from benchmarks.pipeline.assay_run import run_assay
from feature_store.errors import InputError
from serving.bundle import CheckedBundle, check_bundle, open_bundle
from serving.control.champion import Champion
from serving.control.parts import Model
from serving.session import Predictor
from systems.autoscaling.benchmarks.real_servers.settings import AT_REST_MIB, CHALLENGE, CORES, MEMORY_MIB, SLO_MS


@dataclass(frozen=True)
class FinishedRun:
    """A finished run.

    Attributes:
        home: its state folder.
        entries: workload -> its entry in the run's summary.
    """

    home: Path
    entries: Mapping[str, Mapping[str, Any]]

    def bundle(self, workload: str) -> Path:
        """What the gates judged, whether or not they let it through; unsigned."""
        return self._left(f"gate/gated/{workload}")

    @property
    def features(self) -> Path:
        """The load that it was trained on."""
        return self._left("featurize/features")

    def _left(self, name: str) -> Path:
        found = sorted((self.home / "runs").glob(f"*/outputs/*/{name}"))
        if not found:
            raise InputError(f"run must have left {name}, got none in {self.home}")
        return found[-1]


def task_of(kind: str) -> dict[str, Any]:
    """The shipped task for the services of this benchmark.

    Args:
        kind: "weakened": nothing but ranges is demanded, and nothing holds by construction; "other": for an application
            of ten times the work a request and another objective; else as it is shipped.
    """
    task: dict[str, Any] = yaml.safe_load((ROOT / "systems/autoscaling/autoscaling.yaml").read_text())
    properties = task["specification"]["properties"]
    if kind == "weakened":
        del task["by_construction"]
        properties = [rule for rule in properties if "range" in rule]
    # with one instance there is nothing to prove of four and more
    task["specification"]["properties"] = [
        rule for rule in properties if all(one.get("when", {}).get("replicas", [1])[0] <= 1 for one in rule.values())]
    task["workloads"] = {
        name: {"settings": {"server": name, "slo_ms": SLO_MS, "workers": 1, "memory_mib": AT_REST_MIB[name]},
               "limits": {"target_cpu_limit_cores": list(CORES), "target_memory_limit_mib": [memory, memory],
                          "target_replicas": [1, 1]}}
        for name, memory in MEMORY_MIB.items()}
    if kind == "other":
        for workload in task["workloads"].values():
            workload["settings"] = {"cpu_ms": 10.0, "fixed_ms": 5.0, "slo_ms": 200.0, "workers": 8, "memory_mib": 20.0,
                                    "request_mib": 0.1}
            workload["limits"]["target_cpu_limit_cores"] = [CORES[0], 16.0]
    return task


def replicated_task(server: str, slo_ms: float, violating_share: float) -> dict[str, Any]:
    """The shipped task for a service whose replicas change too (challenge.py).

    Args:
        slo_ms: objective of the 99th percentile.
        violating_share: of the steps, that training aims at.
    """
    task: dict[str, Any] = yaml.safe_load((ROOT / "systems/autoscaling/autoscaling.yaml").read_text())
    memory = MEMORY_MIB[server]
    task["objective"] = {"violating_share": violating_share}
    task["specification"]["properties"] = [
        rule for rule in task["specification"]["properties"]
        if all(one.get("when", {}).get("replicas", [1])[0] <= CHALLENGE.replicas[1] - 1 for one in rule.values())]
    task["workloads"] = {server: {
        "settings": {"server": server, "slo_ms": slo_ms, "workers": 1, "memory_mib": AT_REST_MIB[server],
                     "startup_s": sum(CHALLENGE.start_up_s) / 2},
        "limits": {"target_cpu_limit_cores": list(CHALLENGE.cores), "target_memory_limit_mib": [memory, memory],
                   "target_replicas": list(CHALLENGE.replicas)}}}
    return task


def trained(folder: Path, kind: str, telemetry: Path, options: tuple[str, ...] = (),
            task: Mapping[str, Any] | None = None) -> FinishedRun:
    """Runs `assay run` in `folder`, or reads what a run there came to. task: None: that of the kind."""
    done = folder / f"{kind}.json"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{kind}.yaml"
        file.write_text(yaml.safe_dump(task_of(kind) if task is None else dict(task), sort_keys=False))
        run = run_assay(["--task", str(file), "--telemetry", str(telemetry), *options], folder / kind)
        done.write_text(json.dumps({**run.summary, "seconds": run.seconds}))
    summary = json.loads(done.read_text())
    return FinishedRun(folder / kind, {entry["workload"]: entry for entry in summary["entries"]})


class RuleAlone:
    """Implements `Models`: no policy, so that the rule acts."""

    def current(self) -> Model:
        """See `Models`."""
        return Model(None, "the rule acts alone", "rule")


class Forced:
    """Implements `Models`: a policy that no check has let through, as it would act if somebody left the checks out."""

    def __init__(self, bundle: Path) -> None:
        opened = open_bundle(bundle)
        self.contract = opened.contract
        self._model = Model(Predictor(CheckedBundle(opened)), "", opened.sha256[:12])

    def current(self) -> Model:
        """See `Models`."""
        return self._model


def champion(run: FinishedRun, workload: str) -> Champion:
    """The policy that a run has promoted, checked as any controller checks it.

    Raises:
        InputError: its gates let none through.
    """
    entry = run.entries[workload]
    if not entry["bundle"]:
        raise InputError(f"run must promote a policy of {workload}, got {entry['status']}: {entry['message']}")
    return Champion(lambda: check_bundle(Path(entry["bundle"]), run.home / "keys" / "assay.pub"))
