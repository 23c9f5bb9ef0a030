"""Real packets over ten links: a proved policy and our rules beside the kernel's own CUBIC and BBR.

    python -m benchmarks congestion-real-link [--policy FILE] [--links 10] [--runs 3] [--seconds 20]

Two network namespaces and a relay between them (real_link.py), which measures all alike, packet by packet
(live_run.py). One flow of each controller; two of each but our rules; the policy beside CUBIC and BBR. The policy
is exported, decided (it must be PROVED), signed, and acts by `assay control`: shield, fallback and log are those of any
controller. --policy is a file that `Policy.save` wrote; where there is none yet, one is trained as congestion.yaml asks
for, and written there. As root; whatever else the machine does is in the figures. Resumable: what is there for the same
code, policy, length and objective is kept; --again-over-ms measures again what the relay was late in.
"""

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from feature_store.errors import AssayError, InputError
from systems.congestion.benchmarks.live_run import (
    KERNEL,
    POLICY,
    RULES,
    TASK,
    WORKLOAD,
    Link,
    Ours,
    measured,
    probed,
)

OUTPUT = RESULTS / "congestion_real_link.json"
FORMAT = "assay-congestion-real-link/1"
FALLBACK = "bbr"  # as congestion.yaml has it
ALONE = (*KERNEL, POLICY, *RULES)
ARMS: tuple[tuple[str, ...], ...] = (*((one,) for one in ALONE), *((one, one) for one in (*KERNEL, POLICY)),
                                     (POLICY, "cubic"), (POLICY, "bbr"))
LINKS = (
    Link("A", 2, 40, 1.0), Link("B", 2, 200, 0.5, 0.01), Link("C", 4, 20, 4.0), Link("D", 4, 100, 2.0),
    Link("E", 8, 10, 4.0), Link("F", 8, 60, 1.0, 0.001), Link("G", 12, 30, 0.25), Link("H", 12, 120, 1.0, 0.01),
    Link("I", 24, 20, 2.0, 0.001), Link("J", 24, 80, 0.5))
RUNS, SECONDS, OBJECTIVE_MS = 3, 20.0, 20.0
PROBES_PPS = (100.0, 500.0, 1000.0, 2000.0, 3000.0, 4000.0)
ATTEMPTS = 2  # of a run in which a process failed
_IN_MEMORY = Path("/dev/shm")  # where a controller's log does not wait for a disk


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--policy", type=Path, help="file of a policy; trained and written there where it is missing")
    parser.add_argument("--links", type=int, default=len(LINKS), help=f"the first so many; default: {len(LINKS)}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each; default: {RUNS}")
    parser.add_argument("--seconds", type=float, default=SECONDS,
                        help=f"of a run, of which the first quarter is left out; default: {SECONDS:g}")
    parser.add_argument("--objective-ms", type=float, default=OBJECTIVE_MS,
                        help=f"of queueing, told to policy and rules; default: {OBJECTIVE_MS:g}")
    parser.add_argument("--again-over-ms", type=float, default=math.inf,
                        help="measure runs again that are there, in which the relay was later than that in the 99th "
                             "percentile, and probe it again: something else had the machine; default: none")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet: first everything once, then everything again."""
    if not 0 < options.links <= len(LINKS) or options.runs < 1 or options.seconds < 4:
        raise InputError(f"--links, --runs and --seconds must be 1 to {len(LINKS)}, at least 1, and at least 4, got "
                         f"{options.links}, {options.runs} and {options.seconds:g}")
    code = code_digest("systems.congestion.benchmarks.live_run", "systems.congestion")
    kept = {"code": code, "seconds": options.seconds, "objective_ms": options.objective_ms}
    with TemporaryDirectory(prefix="assay-real-link-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as name:
        ours, model = _made(Path(name), options.policy, 1e-3 * options.objective_ms)
        entries = Entries(options.output, FORMAT, _key, lambda _, one: (
            all(one[name] == value for name, value in kept.items()) and one.get("model") in (None, model)
            and one["late_us"]["p99"] <= 1e3 * options.again_over_ms))
        entries.content |= {"machine": {**describe_machine(), "date": now_utc()}, "links": [
            {**asdict(one), "queue_packets": one.path(0).queue_packets} for one in LINKS]}
        if entries.content.get("relay", {}).get("code") != code or math.isfinite(options.again_over_ms):
            entries.content["relay"] = {"code": code, "probes": [probed(rate) for rate in PROBES_PPS]}
            entries.add()
        wanted = [(link, turn, arm) for turn in range(options.runs) for place, link in enumerate(LINKS[:options.links])
                  for arm in _rotated(ARMS, turn + place) if not entries.has((turn, place, ARMS.index(arm)))]
        began = time.monotonic()
        for number, (link, turn, arm) in enumerate(wanted):
            found = _tried(link, turn, arm, ours, options.seconds)
            entries.add({"link": link.name, "run": turn, "controllers": list(arm), **kept,
                         **({"model": model} if POLICY in arm else {}), **found})
            left_s = (time.monotonic() - began) / (number + 1) * (len(wanted) - number - 1)
            print(f"{number + 1}/{len(wanted)}, {left_s / 60:.0f} min left: {link.name}, run {turn}, "
                  f"{_said(arm, found)}", flush=True)


def _tried(link: Link, turn: int, arm: Sequence[str], ours: Ours, seconds: float) -> dict[str, Any]:
    for attempt in range(ATTEMPTS):
        try:
            return measured(link, 1000 * turn + LINKS.index(link), arm, ours, seconds)
        except AssayError as error:
            if attempt == ATTEMPTS - 1:
                raise InputError(f"{link.name}, {' and '.join(arm)}: {error}") from error
            print(f"again: {error}", flush=True)
    raise AssertionError


def _rotated(arms: Sequence[tuple[str, ...]], by: int) -> Sequence[tuple[str, ...]]:
    by %= len(arms)
    return [*arms[by:], *arms[:by]]


def _key(entry: Mapping[str, Any]) -> tuple[int, int, int]:
    return (entry["run"], [link.name for link in LINKS].index(entry["link"]),
            ARMS.index(tuple(entry["controllers"])))


def _said(arm: Sequence[str], found: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {flow['mbps']:.2f} Mbit/s, p95 {flow['wait_ms']['p95']:.1f} ms, lost "
                     f"{100 * flow['lost']:.2f} %" for name, flow in zip(arm, found["flows"], strict=True))


def _made(work: Path, policy: Path | None, objective_s: float) -> tuple[Ours, str]:
    """What acts of ours, and the model's SHA-256; rules are set as they were tuned to links of all families."""
    from systems.congestion.benchmarks.against_rules import tuned_settings

    tuned = tuned_settings([*(name.split()[0] for name in RULES), FALLBACK])
    folder = work / "bundle"
    model = _bundle(_policy(policy), tuned[FALLBACK], folder, work)
    return Ours(work, folder, work / "assay.pub", {name: tuned[name.split()[0]] for name in RULES}, objective_s), model


def _policy(file: Path | None) -> Any:
    from models.control.policy.policy import Policy
    from systems.congestion.benchmarks.against_rules import trained_policy

    if file is not None and file.exists():
        return Policy.load(file)
    print("training a policy", flush=True)
    policy = trained_policy(0)
    if file is not None:
        policy.save(file)
    return policy


def _bundle(policy: Any, fallback: Mapping[str, float], folder: Path, work: Path) -> str:
    """Exports, decides and signs; the model's SHA-256. Raises InputError: it is not PROVED."""
    from models.control.contract.systems import environment_of
    from models.export.bundle import complete_bundle, write_bundle
    from models.export.json_file import write_json
    from models.export.product import Versions
    from models.gate_report import evaluate_gates
    from models.gates import VerdictGate
    from models.tasks.control.policies import with_limits
    from models.tasks.control.product import policy_product
    from models.tasks.control.scoring import Score
    from models.tasks.control.tuned_rule import TunedRule
    from models.tasks.task import load_task
    from serving.keys import create_key_pair
    from serving.signature import sign_folder
    from systems.congestion.simulator import Congestion

    task = load_task(TASK)
    limits = task.workload(WORKLOAD).limits
    environment = Congestion(tuple(replace(one, low=limits[one.name][0], high=limits[one.name][1])
                                   for one in environment_of(TASK).controls))
    rule = TunedRule(FALLBACK, fallback, Score(0.0, 0.0, 0.0, 0.0), 0)  # of which its name and settings ship
    product = policy_product(task, WORKLOAD, environment, with_limits(policy, environment), Versions(TASK, TASK, 0),
                             rule)
    verdict = write_bundle(work / "product", product)
    if verdict.status != "PROVED":
        raise InputError(f"--policy must be one that is PROVED, got {verdict.status}")
    evidence = {"kind": task.kind, "task": TASK, "workload": WORKLOAD, "metrics": {},
                "verdict": {"status": str(verdict.status)}}
    complete_bundle(work / "product", folder, evidence)
    write_json(folder / "gates.json", evaluate_gates(evidence, None, [VerdictGate()]).to_json())
    private = work / "assay.key"
    create_key_pair(private, work / "assay.pub")
    sign_folder(folder, private)
    return verdict.model_sha256
