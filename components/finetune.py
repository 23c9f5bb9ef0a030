"""finetune: each workload of a shard gets its learner."""

import json
from pathlib import Path

from components.kind import task_and_kind
from components.progress import step
from components.workload_status import together


def run_finetune(task_yaml: str, workloads: list[str], seed: int, features: Path, pretrained: Path,
                 output: Path) -> None:
    """Writes <workload>/ below `output` for each of the shard's workloads."""
    with step("finetune", workloads) as progress:
        task, kind = task_and_kind(task_yaml)
        status = json.loads((features / "status.json").read_text())
        messages = {name: status.get(name, "the telemetry has no such rows") for name in workloads}

        def work(names: list[str], folders: dict[str, Path]) -> dict[str, str]:
            return kind.finetune(task, names, int(seed), features, pretrained, folders, progress)

        together("finetune", workloads, messages, output, work, progress.done)
