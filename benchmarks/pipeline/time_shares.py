"""Where the wall time of a run goes: every moment is given to what was going on in it.

A moment in which several step processes are alive is shared equally among them, so that a process start
that hides behind another step's work still counts; a moment without any is the orchestrator's. The shares
add up to the run.

    work                 own work of ingest, featurize, pretrain, finetune, verify, export, report
    great_expectations   validate: Great Expectations with its import and its Data Docs
    mlflow               gate and register: MLflow's import, database and artifacts, with the comparison, signing
                         and ledger around them
    starts_and_imports   from the start of a step's process to the beginning of its work
    orchestration        no step's process is alive: the command's start, compiling, kfp between the steps

Overhead is all but `work`. That counts against it what is useful in validate, gate and register (the data
rules, the gates, the signatures), and in its favour the logging of the report to MLflow, which is part of report.
"""

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.pipeline.assay_run import StepTimes

WORK, STARTS, ORCHESTRATION = "work", "starts_and_imports", "orchestration"
KINDS = {"validate": "great_expectations", "gate": "mlflow", "register": "mlflow"}
SHARES = (WORK, "great_expectations", "mlflow", STARTS, ORCHESTRATION)


def time_shares(began: float, ended: float, steps: Sequence[StepTimes]) -> dict[str, float]:
    """Seconds of each kind between `began` and `ended` (Unix s); they add up to ended - began."""
    spans = [span for step in steps for span in (
        (step.process_started, step.began, STARTS), (step.began, step.ended, KINDS.get(step.step, WORK)))]
    spans = [(max(start, began), min(end, ended), kind) for start, end, kind in spans]
    walls = sorted({began, ended, *(wall for start, end, _ in spans if start < end for wall in (start, end))})
    seconds = dict.fromkeys(SHARES, 0.0)
    for left, right in pairwise(walls):
        alive = [kind for start, end, kind in spans if start <= left and right <= end and start < end]
        for kind in alive or [ORCHESTRATION]:
            seconds[kind] += (right - left) / max(len(alive), 1)
    return seconds


def overhead_share(seconds: dict[str, float]) -> float:
    """Share of the run, 0..1, that is not `work`."""
    return 1.0 - seconds[WORK] / sum(seconds.values())
