"""A service that no recording knows, from nothing to a proved policy to a page: how long it takes and what comes out.

    python -m benchmarks autoscaling-own-service [--minutes 60] [--shadow-minutes 60] [--running URL]

As docs/tutorial-my-service.md has it: the service of examples/own_service behind HAProxy under load is recorded for so
many minutes, then `assay init`, `assay run`, `assay control --shadow` and `assay shadow-report`. With --running the
service of that Prometheus server is taken, which was started before. Needs root, haproxy and prometheus.

One gate is lowered: the paper's reward, which holds memory's use as dear as CPU's, may be 0.1 below the best rule's.
"""

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.isolation import ROOT
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.pipeline.assay_run import COMMAND, run_assay
from feature_store.errors import AssayError
from feature_store.whole_files import write_file
from pipelines.request import code_version
from recording.tools import require_tools

OUTPUT = RESULTS / "autoscaling_own_service.json"
FORMAT = "assay-own-service/1"
URL, GROUP, NAME = "http://127.0.0.1:8890", "shop/fractals", "fractals"
WINDOW_S, OBJECTIVE_MS, REWARD = 15, 100.0, -0.1
KEPT = ("cost_saved", "cost_saved_lower", "own_cost_saved", "violating_share", "violating_share_upper", "reward_gain",
        "reward_gain_lower")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--minutes", type=float, default=60.0, help="of recording, or looked back; default: 60")
    parser.add_argument("--shadow-minutes", type=float, default=60.0, help="of the shadow; default: 60")
    parser.add_argument("--running", metavar="URL", help="Prometheus of a service that was started before")


def run(options: argparse.Namespace) -> None:
    """Everything, in this order; nothing is kept of a run that was stopped."""
    require_tools(["prometheus", "haproxy"])
    with tempfile.TemporaryDirectory(prefix="assay-benchmark-") as folder, _service(options) as url:
        work = Path(folder)
        found = {"format": FORMAT, "machine": {**describe_machine(), "date": now_utc()}, "code": code_version(),
                 "load_average": load_average(), "recorded_minutes": options.minutes, **_measured(work, url, options)}
    write_file(options.output, json.dumps(found, indent=1) + "\n")


@contextmanager
def _service(options: argparse.Namespace) -> Iterator[str]:
    if options.running:
        yield options.running
        return
    started = subprocess.Popen([ROOT / "examples" / "own_service" / "start.sh"], start_new_session=True)
    try:
        print(f"recording for {options.minutes:g} minutes", flush=True)
        time.sleep(60.0 * options.minutes)
        yield URL
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(30)


def _measured(work: Path, url: str, options: argparse.Namespace) -> dict[str, Any]:
    home, place = work / "home", work / NAME
    configuration = yaml.safe_load((ROOT / "mlflow.yaml").read_text())
    configuration["gates"]["autoscaling"]["reward"]["at_least"] = REWARD
    (work / "mlflow.yaml").write_text(json.dumps(configuration))
    environment = {**os.environ, "ASSAY_HOME": str(home), "ASSAY_CONFIG": str(work / "mlflow.yaml"),
                   "PYTHONPATH": str(ROOT)}

    def assay(*words: object) -> tuple[float, str]:
        begin = time.perf_counter()
        done = subprocess.run([*COMMAND, *map(str, words)], cwd=work, env=environment, check=True, text=True,
                              stdout=subprocess.PIPE)
        print(f"assay {words[0]}: {time.perf_counter() - begin:.1f} s", flush=True)
        return time.perf_counter() - begin, done.stdout

    seconds: dict[str, float] = {}
    seconds["init"], _ = assay("init", "--prometheus", url, "--cgroup", GROUP, "--last", f"{options.minutes:g}m",
                               "--window", WINDOW_S, "--objective", OBJECTIVE_MS)
    task = yaml.safe_load((place / "task.yaml").read_text())["workloads"][NAME]
    trained = run_assay(["--task", str(place / "task.yaml"), "--telemetry", url, "--mapping", str(place / "load.yaml")],
                        home, work / "mlflow.yaml")
    (entry,), seconds["run"] = trained.summary["entries"], trained.seconds
    if entry["gates"] is None:
        raise AssayError(f"{NAME} must be registered by `assay run`, got {entry['status']}: {entry['message']}")
    found = {"seconds": seconds, "settings": task["settings"], "limits": task["limits"],
             "verdict": entry["verdict"], "gates": {one["name"]: one["passed"] for one in entry["gates"]["gates"]},
             "metrics": {name: entry["metrics"][name] for name in KEPT}}
    print(f"{found['verdict']}, gates: {found['gates']}", flush=True)
    if not all(found["gates"].values()):  # nobody acts or watches with what was refused
        return {**found, "shadow": None}
    steps = round(60.0 * options.shadow_minutes / WINDOW_S)
    seconds["shadow"], _ = assay("control", "--shadow", "--workload", NAME, "--controller", place / "controller.yaml",
                                 "--actuator", "watch", "--steps", steps, "--json")
    seconds["report"], page = assay("shadow-report", "--workload", NAME, "--task", place / "task.yaml", "--json")
    said = json.loads(page)
    return {**found, "shadow": {name: said[name] for name in ("hours", "steps", "verdict", "doubts", "next", "decided",
                                                              "measured", "replay")}}


def own_service_table(results: Mapping[str, Any]) -> str:
    """A row a step."""
    seconds, metrics, shadow = results["seconds"], results["metrics"], results["shadow"]
    passed, settings = sum(results["gates"].values()), results["settings"]
    rows = [
        ["`assay init`", number(seconds["init"]), ", ".join(f"{name} {value:g}" for name, value in settings.items())],
        ["`assay run`", number(seconds["run"]),
         f"{results['verdict']}, {passed} of {len(results['gates'])} gates; cost saved against the best rule "
         f"{100 * metrics['cost_saved']:+.1f} %, violating {100 * metrics['violating_share']:.2f} % of the steps, "
         f"reward {metrics['reward_gain']:+.3f}"]]
    if shadow:
        rows += [
            ["shadow", number(seconds["shadow"]), f"{shadow['steps']} steps, the policy decided in "
             f"{100 * (1.0 - shadow['decided']['not_by_policy']):.0f} %"],
            ["its page", number(seconds["report"]), f"{shadow['verdict']} (doubts: {len(shadow['doubts'])})"]]
    machine, busy = results["machine"], results["load_average"]
    note = paragraph(
        f"The service of examples/own_service, recorded for {results['recorded_minutes']:g} minutes, promised",
        f"{OBJECTIVE_MS:g} ms. One gate was lowered: the reward may be {-REWARD:g} below the best rule's. One run, on",
        f"{machine['cores']} cores of {machine['cpu_model']}; load average {busy:g} at the start.",
        f"{machine['date'][:10]}.")
    return f"{table(['step', 'seconds', 'what came out'], rows, (1,))}\n\n{note}"
