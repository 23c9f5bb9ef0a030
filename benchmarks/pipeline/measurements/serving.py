"""What a controller waits for: a bundle loaded and checked, and one row predicted, beside plain onnxruntime."""

import json
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.harness.isolation import ROOT, Context
from benchmarks.harness.quantity import below, quantity
from benchmarks.pipeline.measurements.state_folder import state_folder
from benchmarks.pipeline.sizes import Sizes

GOAL_LOAD_SECONDS = 1.0
GOAL_PREDICT_US = 100.0


def measure(sizes: Sizes, context: Context) -> dict[str, Any]:
    """Several new processes (serving_process.py); each opens all bundles, beginning with another one."""
    state = state_folder(context)
    folders = state.bundles
    answers: list[dict[str, Any]] = []
    for number in range(sizes.serving_processes):
        turn = number % len(folders)
        request = {"bundles": [str(folder) for folder in folders[turn:] + folders[:turn]],
                   "public_key": str(state.public_key), "repeats": sizes.serving_repeats,
                   "home": str(state.home), "configuration": str(state.configuration)}
        done = subprocess.run([sys.executable, "-m", "benchmarks.pipeline.measurements.serving_process"],
                              cwd=ROOT, check=True, input=json.dumps(request), stdout=subprocess.PIPE, text=True)
        answers.append(json.loads(done.stdout.splitlines()[-1]))
        context.say(f"process {number + 1} of {sizes.serving_processes}")
    workloads = sorted(answers[0]["timings"])
    medians = {name: {kind: statistics.median(one["timings"][name][kind] for one in answers)
                      for kind in ("checked_us", "plain_us")} for name in workloads}
    slowest = max(workloads, key=lambda name: medians[name]["checked_us"])
    checked, plain = ([one["timings"][slowest][kind] for one in answers] for kind in ("checked_us", "plain_us"))
    return {
        "quantities": {
            "load": quantity("first bundle of a process loaded and checked, after the imports", "s",
                             [one["first_load_s"] for one in answers], below(GOAL_LOAD_SECONDS)),
            "load_again": quantity("each further bundle of the process", "s",
                                   [value for one in answers for value in one["further_loads_s"]] or
                                   [one["first_load_s"] for one in answers]),
            "registry": quantity("MLflow's registry opened, after the imports", "s",
                                 [one["registry_s"] for one in answers]),
            "champion": quantity("champion from the open registry loaded and checked", "s",
                                 [one["champion_s"] for one in answers]),
            "imports": quantity("imports of serving.session", "s", [one["imports_s"] for one in answers]),
            "predict": quantity(f"one row predicted with all input checks ({slowest}, the slowest)", "us", checked,
                                below(GOAL_PREDICT_US)),
            "plain": quantity("plain onnxruntime on a ready matrix", "us", plain, beside="predict")},
        "details": {"what": "each value of a prediction is a process's median over single calls, both ways in turn",
                    "bundles": state.origin, "calls": sizes.serving_repeats, "median_us": medians}}
