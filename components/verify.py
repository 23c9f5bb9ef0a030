"""verify: the final proof of each learner of a shard, with the full budget."""

from pathlib import Path

from components.kind import task_and_kind
from components.progress import step
from components.workload_status import each


def run_verify(task_yaml: str, workloads: list[str], seed: int, features: Path, learner: Path, output: Path) -> None:
    """Writes <workload>/ below `output`: the learner, and what the proof left."""
    with step("verify", workloads) as progress:
        task, kind = task_and_kind(task_yaml)

        def work(name: str, folder: Path) -> None:
            kind.verify(task, name, int(seed), features, learner / name, folder, progress)

        each("verify", workloads, learner, output, work, progress.done)
