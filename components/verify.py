"""verify: each learner of a shard becomes the file that ships, and its specification is decided on that file."""

import json
import shutil
from pathlib import Path

from components.kind import task_and_kind
from components.progress import step
from components.workload_status import each
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.verification.search.search_result import Progress

PRODUCT = "product"  # the folder of the bundle, as yet without evidence
VERDICT = "verdict.json"


def run_verify(task_yaml: str, workloads: list[str], seed: int, code_version: str, features: Path, learner: Path,
               output: Path) -> None:
    """Writes <workload>/ below `output`: the learner, product/ (the bundle but for its evidence) and verdict.json."""
    with step("verify", workloads) as progress:
        task, kind = task_and_kind(task_yaml)

        def report(part: str, state: Progress) -> None:
            progress({"proved_share": state.proved_share, "open_boxes": state.open_boxes,
                      "worst_bound": state.worst_bound})

        def work(name: str, folder: Path) -> None:
            quality = json.loads((features / name / "quality.json").read_text())
            versions = Versions(code_version, str(quality["data_version"]), int(seed))
            product = kind.product(task, name, versions, features, learner / name)
            shutil.copytree(learner / name, folder, dirs_exist_ok=True)
            verdict = write_bundle(folder / PRODUCT, product, int(seed), report)
            (folder / VERDICT).write_text(json.dumps(verdict.evidence()))

        each("verify", workloads, learner, output, work, progress.done)
