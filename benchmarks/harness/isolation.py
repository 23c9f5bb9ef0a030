"""Runs one measurement in a process of its own: it cannot warm, slow down or sink the others.

Usage by pipeline/speed.py alone: python -m benchmarks.harness.isolation REQUEST.json RESULT.json
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import without_paths
from benchmarks.pipeline.sizes import Sizes
from feature_store.process_end import end_with_parent

ROOT = Path(__file__).resolve().parents[2]
# A measurement that takes this long is stuck: the longest takes a quarter of it on two idle cores.
LIMIT_S = 3600.0
GRACE_S = 20.0
# What a measurement's module defines: measure(sizes, context) -> {"quantities", "details"}.
MEASUREMENTS = {
    "ingestion": "benchmarks.pipeline.measurements.ingestion",
    "recorder": "benchmarks.pipeline.measurements.recorder",
    "stages": "benchmarks.pipeline.measurements.stages",
    "serving": "benchmarks.pipeline.measurements.serving",
    "rollback": "benchmarks.pipeline.measurements.rollback",
    "scale": "benchmarks.pipeline.measurements.scale",
}


class Context:
    """What a measurement is given beside its sizes.

    Attributes:
        work: folder shared by the measurements of one benchmark; removed at its end.
        telemetry: the recorded telemetry (Parquet).
    """

    def __init__(self, work: Path, telemetry: Path, name: str) -> None:
        self.work, self.telemetry, self.name = work, telemetry, name

    def say(self, text: str) -> None:
        """Progress for whoever watches."""
        print(f"{time.strftime('%H:%M:%S')}  {self.name}: {text}", file=sys.stderr, flush=True)


def run_isolated(name: str, sizes: Sizes, work: Path, telemetry: Path, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """{"status": "done", "quantities", "details"} or {"status": "failed", "error"}; never raises for a measurement."""
    request, result = work / f"{name}.request.json", work / f"{name}.result.json"
    result.unlink(missing_ok=True)
    request.write_text(json.dumps({"name": name, "sizes": asdict(sizes), "work": str(work),
                                   "telemetry": str(telemetry)}))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true",
                   "GX_ANALYTICS_ENABLED": "False"}
    command = [sys.executable, "-m", "benchmarks.harness.isolation", str(request), str(result)]
    child = subprocess.Popen(command, cwd=ROOT,
                             env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True,
                             preexec_fn=end_with_parent)
    try:
        child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return {"status": "failed", "error": f"it was stopped after {limit_s:g} s"}
    finally:
        end_group(child)
    if not result.is_file():
        return {"status": "failed", "error": f"its process ended with code {child.returncode}"}
    return dict(json.loads(result.read_text()))


def stop_as_by_keyboard() -> None:
    """SIGTERM and SIGINT raise KeyboardInterrupt, so that clean-up runs; a background job would ignore SIGINT."""
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, signal.default_int_handler)


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """Ends the child, which cleans up, and then for good whatever of its session is left."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main(request_path: Path, result_path: Path) -> None:
    stop_as_by_keyboard()
    request = json.loads(request_path.read_text())
    sizes = request["sizes"]
    sizes["scale_workloads"] = tuple(sizes["scale_workloads"])
    context = Context(Path(request["work"]), Path(request["telemetry"]), request["name"])
    try:
        outcome = {"status": "done", **import_module(MEASUREMENTS[request["name"]]).measure(Sizes(**sizes), context)}
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        message = without_paths(f"{type(error).__name__}: {error}")
        context.say(f"failed: {message}")
        outcome = {"status": "failed", "error": message}
    result_path.write_text(json.dumps(outcome, allow_nan=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
