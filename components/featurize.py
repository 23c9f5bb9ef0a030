"""featurize: every workload that passed the data gate -> what its learner is trained and judged by."""

import json
from pathlib import Path

from components.kind import task_and_kind
from components.progress import step
from components.tracking import project_configuration
from feature_store.correlation import correlation_table
from feature_store.samples import Samples


def run_featurize(task_yaml: str, workloads: list[str], seed: int, validated: Path, output: Path) -> dict[str, str]:
    """Writes <workload>/ for each usable workload, correlation.json, and status.json: workload -> "" or why not.

    Passes validation.json and source.json on.
    """
    with step("featurize", workloads):
        task, kind = task_and_kind(task_yaml)
        samples = Samples(validated)
        verdicts = json.loads((validated / "validation.json").read_text())
        output.mkdir(parents=True, exist_ok=True)
        status = {name: "; ".join(failure["message"] for failure in verdicts[name]["failures"]) for name in workloads}
        checks = {name: verdicts[name]["checks"] for name in workloads if not status[name]}
        if checks:
            status |= kind.featurize(task, samples, checks, int(seed), validated, output, project_configuration().home)
        columns, target = kind.correlated(task)
        pooled = correlation_table(samples.of(checks), columns, target) if columns else {}
        (output / "correlation.json").write_text(json.dumps({"pooled": pooled}, indent=1))
        (output / "status.json").write_text(json.dumps(status, indent=1))
        (output / "validation.json").write_text(json.dumps(verdicts, indent=1))
        (output / "source.json").write_text((validated / "source.json").read_text())
        return status
