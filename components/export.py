"""export: what was proved of each workload of a shard, and the evidence about the file that ships, become a bundle."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from components.kind import task_and_kind
from components.progress import step
from components.verify import PRODUCT, VERDICT
from components.workload_status import each
from feature_store.digests import content_digest
from models.export.bundle import complete_bundle

PACKAGES = ("torch", "onnx", "onnxruntime", "scikit-learn", "numpy", "pandas", "mlflow", "kfp")


def run_export(task_yaml: str, workloads: list[str], seed: int, code_version: str, command: str, features: Path,
               verified: Path, output: Path) -> None:
    """Writes <workload>/ below `output`: the bundle that `verify` left, with its evidence.json.

    Args:
        command: what reproduces the version, see pipelines/request.py; "": unknown.
    """
    with step("export", workloads) as progress:
        task, kind = task_and_kind(task_yaml)
        validation = json.loads((features / "validation.json").read_text())
        installed = {"python": platform.python_version(), "packages": {name: version(name) for name in PACKAGES}}

        def work(name: str, folder: Path) -> None:
            quality = json.loads((features / name / "quality.json").read_text())
            versions = {"code_version": code_version, "data_version": quality["data_version"], "seed": int(seed)}
            product = verified / name / PRODUCT
            own = kind.evidence(task, name, int(seed), features, verified / name, product)
            guarantee = own.pop("guarantee", None)
            evidence = {
                "format": "assay-evidence/1", "kind": task.kind, "task": task.name, "workload": name,
                "seed": int(seed), **own,
                "verdict": json.loads((verified / name / VERDICT).read_text()),
                "data": _data(features / name, quality, validation[name].get("bad_rows") or quality.get("bad_rows")),
                "reproduce": {"command": command, **versions, **installed}}
            folder.rmdir()  # complete_bundle makes it whole
            complete_bundle(product, folder, evidence, guarantee)

        each("export", workloads, verified, output, work, progress.done)


def _data(folder: Path, quality: dict[str, Any], bad_rows: dict[str, Any] | None) -> dict[str, Any]:
    rows: dict[str, Any] = {key: quality[key] for key in ("train_rows", "test_rows") if key in quality}
    rows |= {"bad_rows": bad_rows} if bad_rows else {}
    return {**rows, "quality": quality, "files": {path.name: content_digest(path) for path in
                                                  sorted(folder.glob("*.parquet"))}}
