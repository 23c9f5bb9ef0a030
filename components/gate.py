"""gate: all gates of mlflow.yaml on every bundle; a missing or NaN metric fails."""

import json
import shutil
from pathlib import Path
from typing import Any

from components.kind import task_and_kind
from components.progress import step
from components.tracking import project_configuration
from components.workload_status import failure
from feature_store.errors import AssayError, InputError, RefusedError, UnavailableError
from feature_store.names import inside
from models.export.json_file import write_json
from models.gate_report import evaluate_gates
from models.tasks.attempts import attempt
from models.tasks.kind import Kind

CHAMPIONS = "champions.json"


def run_gate(task_yaml: str, workloads: list[str], features: Path, bundles: list[Path], output: Path) -> bool:
    """Copies each bundle to <output>/<workload>/ with its gates.json; a failed workload keeps its failed.json.

    champions.json beside them: workload -> the standing champion measured as the new model was, or null.

    Args:
        bundles: one folder per shard, with one per workload.

    Returns:
        Whether every workload passed all gates.
    """
    from serving.registry import Registry

    with step("gate"):
        (task, kind), configuration = task_and_kind(task_yaml), project_configuration()
        folders = {workload: inside(output, workload) for workload in workloads}
        registry = Registry(configuration)
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        made = {folder.name: folder for shard in bundles for folder in shard.iterdir() if folder.is_dir()}
        passed, champions = [], {}
        for workload, folder in folders.items():
            shutil.copytree(made[workload], folder)
            if failure(folder):
                passed.append(False)
                continue
            evidence = json.loads((folder / "evidence.json").read_text())
            champions[workload] = champion = _champion(registry, kind, task, workload, features, folder)
            report = evaluate_gates(evidence, champion, configuration.gates[task.name])
            write_json(folder / "gates.json", report.to_json())
            passed.append(report.passed)
        write_json(output / CHAMPIONS, champions)
        return all(passed)


def _champion(registry: Any, kind: Kind, task: Any, workload: str, features: Path,
              bundle: Path) -> dict[str, Any] | None:
    """The standing champion on the new cases, with its version, and what the new bundle changes; None: no champion.

    Raises:
        UnavailableError: registry or ledger are away, which must reject no bundle.
    """
    version = registry.champion(task.name, workload)
    if version is None:
        return None
    measured: dict[str, Any] = {}

    def measure() -> None:
        try:
            champion = registry.open_champion(task.name, workload)
        except (RefusedError, InputError):
            raise
        except AssayError as error:
            raise UnavailableError(str(error)) from error
        measured.update(kind.champion(task, workload, features, champion))
        attempt(lambda: measured.update(changes=_changes(bundle, champion)))

    message = attempt(measure)
    if message:  # a champion that cannot be compared must not be replaced unseen: a missing metric fails its gate
        return {"version": version, "metrics": {}, "reason": message}
    return {**measured, "version": version}


def _changes(bundle: Path, champion: Any) -> dict[str, Any]:
    """For the report alone: where it cannot be told, the report says so."""
    from serving.contract import SPECIFICATION_FILE, Contract
    from serving.promise import read_promise
    from serving.version_change import changes

    contract = Contract.from_json(json.loads((bundle / "contract.json").read_text()))
    return changes(read_promise(contract, (bundle / SPECIFICATION_FILE).read_bytes(), str(bundle)), champion)
