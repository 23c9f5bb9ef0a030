"""What exported autoscalers guarantee in the closed loop with the fluid law, and how far simulations stay inside of it.

    python -m benchmarks autoscaling-closed-loop [--bundles STATE/bundles/autoscaling] [--policies 3] [--rounds 20]

Policies: those of a run's bundles, each with its workload, and of several seeds trained here as autoscaling-proofs
does, in nginx's place. For each and for each change of the load: `scaler_guarantee`, its certificates checked again.
Then, against every guarantee that is proved, the largest backlog after its N steps, in core seconds:

    law       runs of the fluid law with the policy in onnxruntime, loads and latencies that are meant to do harm
    requests  the same loop with single requests (discrete_event.py), for one policy
    episodes  held-out episodes of the workload's twin, whose load changes by more than any d here; as it is (start-up,
              late and noisy metrics, neighbours), and with all of that off
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.columns import columns_table, left, percent
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.control.contract.systems import environment_of
from models.control.policy.policy_chain import chain
from models.control.policy.policy_model import chain_onnx
from models.control.training.through_environment import ThroughEnvironment
from models.tasks.control.judging import model_acting, play
from models.tasks.control.policies import demands_of, policy_shape, with_limits
from models.tasks.control.training import training_settings
from models.tasks.control.workload import specification_of
from models.tasks.task import load_task
from models.verification.checker.chain import read_chain
from models.verification.decide import decide
from models.verification.language.specification_writing import as_yaml, written_out
from models.verification.network.runtime_session import open_session
from models.verification.proof_file import check_proof
from models.verification.verdict import Status
from systems.autoscaling.benchmarks.discrete_event import Queues, simulate
from systems.autoscaling.environment import TELEMETRY
from systems.autoscaling.guarantee import guarantees
from systems.autoscaling.guarantee.catching_up import ScalerLaw
from systems.autoscaling.guarantee.check_scaler_guarantee import check_scaler_guarantee
from systems.autoscaling.guarantee.guarantees import HEADROOM, LIMITS, LOAD, REPLICAS, START, THRESHOLD
from systems.autoscaling.guarantee.in_fluid_law import (
    Execute,
    FloatArray,
    Runs,
    Serve,
    Service,
    law_of,
    run_law,
    scaler_of,
)
from systems.autoscaling.guarantee.scaler_guarantee import ScalerGuarantee, scaler_guarantee
from systems.autoscaling.simulator.simulator import Autoscaling, Physics

OUTPUT = RESULTS / "autoscaling_closed_loop.json"
FORMAT = "assay-autoscaling-closed-loop/1"
# Cores a step; seconds for the proofs of one.
CHANGES, SECONDS = (0.0, 0.0025, 0.005, 0.01), 60.0
RUN_STEPS, RUNS, VIOLATING = 600, 256, 0.02
EPISODES, STEPS = 128, 240
SERVER = "nginx"  # of the policies that are trained here
CALM = Physics(start_up=False, late_metrics=False, noisy_metrics=False, neighbours=False)


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--bundles", type=Path, help="folder with a folder for each workload, of one run")
    parser.add_argument("--policies", type=int, default=3, help="seeds that are trained here")
    parser.add_argument("--rounds", type=int, default=20, help="of their training")
    parser.add_argument("--request-steps", type=int, default=20, help="steps of the loop with single requests")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    code = with_task(load_task("autoscaling"), code_digest(
        "systems.autoscaling.guarantee.scaler_guarantee", ("models.verification.closed_loop", "systems.autoscaling")))
    entries = Entries(options.output, FORMAT, lambda entry: (entry["policy"], entry["change"]),
                      lambda _, entry: entry["code"] == code)
    entries.content["settings"] = {"load": LOAD, "limits": LIMITS, "replicas": REPLICAS, "start": START,
                                   "threshold": THRESHOLD, "headroom": HEADROOM, "seconds": SECONDS}
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    names = [*_bundles(options.bundles), *(f"seed {k}" for k in range(options.policies))]
    if all(entries.has((name, change)) for name in names for change in CHANGES):
        return
    for name, server, model, proved in _policies(options):
        for change in CHANGES:
            if not entries.has((name, change)):
                steps = options.request_steps if (name, change) == (SERVER, CHANGES[-2]) else 0
                found = measure(server, model, change, steps)
                digest = hashlib.sha256(model).hexdigest()
                entries.add({"policy": name, "server": server, "change": change, "code": code,
                             "specification_proved": proved, "model_sha256": digest, **found})
                print(name, change, found["status"], found["statement"], flush=True)


def measure(server: str, model: bytes, change: float, request_steps: int) -> dict[str, Any]:
    """One guarantee, its check, and what simulations came to."""
    law = law_of(service_of(server), LOAD, change, LIMITS, REPLICAS)
    policy, execute = read_chain(model), in_runtime(model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scaler = scaler_of(policy, service_of(server), law)
        found = scaler_guarantee(scaler, law, START, folder, threshold=THRESHOLD,
                                 headroom=HEADROOM, seconds=SECONDS)
        began = time.monotonic()
        checked = check_scaler_guarantee(folder, scaler, law)
        checking = time.monotonic() - began
    after = found.bound.steps if found.bound else 60
    runs = run_law(execute, service_of(server), law, START, RUN_STEPS + after, RUNS)
    entry = {"status": str(found.status), "statement": found.statement(), "growth": found.growth,
             "sampled_growth": found.sampled_growth, "leaves": found.leaves, "boxes": found.boxes,
             "seconds": found.seconds, "certificate_accepted": checked.accepted, "checking_seconds": checking,
             "bound": None if found.bound is None else [found.bound.backlog, found.bound.steps],
             "law": _attained(runs, after, found), "episodes": episodes(server, model, found, law)}
    if request_steps:
        one_by_one = run_law(execute, service_of(server), law, START, request_steps + after, 24, seed=1,
                             serve=single_requests(service_of(server), law.step_s))
        entry["requests"] = _attained(one_by_one, after, found)
    return entry


def service_of(server: str) -> Service:
    """A recorded server with the objective of the task file."""
    return guarantees.service_of(load_task("autoscaling").workload(server).settings)


def in_runtime(model: bytes) -> Execute:
    """The exported file."""
    session = open_session(model)
    name = session.get_inputs()[0].name

    def execute(seen: FloatArray) -> FloatArray:
        return np.asarray(session.run(None, {name: seen.astype(np.float32)})[0], dtype=np.float64)

    return execute


def single_requests(service: Service, step_s: float, seed: int = 0) -> Serve:
    """A step of Poisson arrivals and log-normal service, on as many servers as there are cores or replicas."""
    cpu_s, number = service.cpu_ms * 1e-3, iter(range(seed, 2**31))

    def serve(b: FloatArray, a: FloatArray, k: FloatArray, limit: FloatArray
              ) -> tuple[FloatArray, FloatArray, FloatArray]:
        servers = np.maximum(k, np.round(k * limit)).astype(np.int64)
        waiting, ones = np.round(b / cpu_s).astype(np.int64), np.ones(len(b))
        queues = Queues(a / cpu_s, servers, cpu_s * servers / (k * limit), np.full(len(b), "gamma"), ones,
                        np.full(len(b), "lognormal"), 0.2 * ones, waiting)
        came = simulate(queues, int((a.max() / cpu_s) * step_s * 1.05), next(number))
        inside, begun = came.arrival_s <= step_s, came.arrival_s + came.wait_s
        # of those who waited already, what the arrivals' waits say: the first arrival begins behind all of them
        left = (inside & (begun > step_s)).sum(axis=1)
        behind = np.where(begun[:, 0] > step_s, np.maximum(waiting - k * limit / cpu_s * step_s, 0.0), 0.0)
        after = (left + behind) * cpu_s
        latency = np.array([np.percentile(one[here], 99) if here.any() else 0.0
                            for one, here in zip(came.latency_s, inside, strict=True)]) * 1e3
        return after, np.minimum(np.maximum(b / step_s + a - after / step_s, 1e-3), k * limit), latency

    return serve


def episodes(server: str, model: bytes, found: ScalerGuarantee, law: ScalerLaw) -> dict[str, Any]:
    """Held-out episodes of the twin, as it is and with all that the law does not know off."""
    task, data = load_task("autoscaling"), pd.read_parquet(TELEMETRY)
    written = task.workload(server)
    rows = data[data["workload"] == server].sort_values("window_start")
    twin = environment_of("autoscaling").twin(rows, written.settings, {
        name: (low, high) for name, (low, high) in written.limits.items()})
    assert isinstance(twin, Autoscaling)
    answer = {}
    for name, environment in (("as it is", twin), ("calm", twin.with_physics(CALM))):
        drawn = environment.draw("held_out", EPISODES, STEPS, 1)
        played = play(environment, drawn, STEPS, model_acting(model))
        speed = drawn.applications.speed.numpy()
        skipped = min(found.bound.steps if found.bound else 60, STEPS // 2)
        load = played.series["load_cores"]
        backlog = (played.series["backlog"] * drawn.cpu_s.numpy() / speed)[skipped:]
        entry = {"largest": float(backlog.max()), "quantile_99": float(np.quantile(backlog, 0.99)),
                 "changes_within": float((np.abs(np.diff(load, axis=0)) <= law.change).mean()),
                 "loads_within": float(((load >= LOAD[0]) & (load <= LOAD[1])).mean())}
        if found.bound:
            entry["steps_inside"] = float((backlog <= found.bound.backlog).mean())
        answer[name] = entry
    return answer


def _attained(runs: Runs, after: int, found: ScalerGuarantee) -> dict[str, float]:
    late = runs.backlog[after:]
    entry = {"largest": float(late.max()), "excess": float((runs.capacity - runs.load)[after:].max())}
    return entry | ({"steps_inside": float((late <= found.bound.backlog).mean())} if found.bound else {})


def _policies(options: argparse.Namespace) -> list[tuple[str, str, bytes, bool]]:
    """Name, server, exported file, and whether the proof of its specification is accepted."""
    found = []
    for name, newest in _bundles(options.bundles).items():
        model = newest / "model.onnx"
        proved = check_proof(newest / "proof.npz", model, newest / "specification.yaml").accepted
        found.append((name, name, model.read_bytes(), proved))
    return found + _trained(options.policies, options.rounds)


def _bundles(folder: Path | None) -> dict[str, Path]:
    """The newest bundle of each workload."""
    return {} if folder is None else {one.name: max(one.iterdir(), key=lambda version: int(version.name))
                                      for one in sorted(folder.iterdir())}


def _trained(policies: int, rounds: int) -> list[tuple[str, str, bytes, bool]]:
    """Of several seeds, under the limits of the workload, whose specification is decided of them."""
    if not policies:
        return []
    task, environment = load_task("autoscaling"), Autoscaling()
    settings = replace(training_settings(task, rounds), judged_from=1.0, applications=32)
    trained = ThroughEnvironment(environment.differentiable, environment, policy_shape(task, environment), settings,
                                 list(range(policies)), [VIOLATING] * policies, demands_of(task)).run().policy
    limits = {name: (low, high) for name, (low, high) in task.workload(SERVER).limits.items()}
    controls = tuple(replace(one, low=limits[one.name][0], high=limits[one.name][1]) for one in environment.controls)
    bounded = environment.with_controls(controls)
    specification = as_yaml(written_out(specification_of(task, SERVER, bounded)))
    models = [chain_onnx(*chain(with_limits(trained.member(k), bounded)), {}) for k in range(policies)]
    return [(f"seed {k}", SERVER, model, specification_proved(model, specification))
            for k, model in enumerate(models)]


def specification_proved(model: bytes, specification: str) -> bool:
    """Whether the file has the orders that a guarantee rests on, with a certificate."""
    with tempfile.TemporaryDirectory() as name:
        file, written = Path(name, "model.onnx"), Path(name, "specification.yaml")
        file.write_bytes(model)
        written.write_text(specification)
        found = decide(file, written, SECONDS, certificate=Path(name, "proof.npz"))
        return found.status is Status.PROVED and found.certificate is not None


def guarantees_table(content: Mapping[str, Any]) -> str:
    """A row for each policy and change."""
    rows = []
    for one in _ordered(content):
        bound = one["bound"] or [None, None]
        rows.append([one["policy"], f"{one['change']:g}", one["status"], _cell(bound[0]),
                     "-" if bound[1] is None else str(bound[1]), f"{one['law']['largest']:.1f}",
                     f"{one['growth']:.2f}" if one["bound"] else "-", str(one["leaves"]) if one["bound"] else "-",
                     f"{one['seconds']:.1f}"])
    return table(["policy", "load changes by, cores a step", "verdict", "backlog S, core s", "after N steps",
                  "attained in the law, core s", "growth a step", "leaves", "s"], rows)


def inside_table(content: Mapping[str, Any]) -> str:
    """How far simulations stay inside, of the proved guarantee with the largest d for each policy."""
    proved = [one for one in _ordered(content) if one["bound"]]
    inside_all = {"changes_within": 1.0, "loads_within": 1.0}  # loads and changes of single requests are the law's
    rows = [{**one, "label": label, "seen": one["episodes"][what]}
            for one in {one["policy"]: one for one in proved}.values()
            for what, label in (("calm", "environment, calm"), ("as it is", "environment, as it is"))]
    rows += [{**one, "label": "single requests", "seen": one["requests"] | inside_all}
             for one in proved if "requests" in one]
    return columns_table(
        rows, left("policy", "policy"), left("d, cores a step", "change", "g"), left("simulation", "label"),
        left("S, core s", lambda row: row["bound"][0], _cell), left("largest backlog", "seen.largest", ".1f"),
        left("steps inside of S, %", "seen.steps_inside", percent(2, "")),
        left("changes within d, %", "seen.changes_within", percent(1, "")),
        left("loads within limits, %", "seen.loads_within", percent(1, "")))


def _ordered(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return sorted(content["entries"], key=lambda one: (one["policy"].startswith("seed"), one["policy"], one["change"]))


def _cell(value: float | None) -> str:
    """Rounded up: only what is proved is printed."""
    return "-" if value is None else f"{np.ceil(value * 10) / 10:.1f}"
