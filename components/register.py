"""register: every gated bundle becomes a model version; those that passed are signed and get an alias."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from components.progress import step
from components.signing_key import take_signing_key
from components.tracking import project_configuration
from components.workload_status import failure
from feature_store.errors import AssayError, UnavailableError
from models.export.json_file import write_json
from serving.kept_bundles import keep_bundle, kept_bundle

REGISTERED = "registered.json"


def run_register(workloads: list[str], telemetry: str, scheduled: bool, features: Path, gated: Path,
                 output: Path) -> list[dict[str, Any]]:
    """Registers what `gate` left; writes registered.json, one entry a workload, and keeps the signed bundles.

    An entry has workload, status, message, and for a version: model, version, alias, role, run_id, reason, bundle
    (folder; with "no new data": the champion's).
    Status: "registered" or "rejected" (as the ledger says), "unchanged" (the model is byte for byte that of a
    registered version, nothing is registered), "failed" in an earlier step, "no new data", "error" (nothing of it is in
    the ledger; after a service that is away, of the workloads that were not tried too).
    """
    from serving.registry import Registry

    with step("register"):
        configuration = project_configuration()
        take_signing_key(configuration)
        registry = Registry(configuration, actor="assay run")
        for drift in registry.reconcile():
            print(drift)
        champions = json.loads((gated / "champions.json").read_text())
        source = json.loads((features / "source.json").read_text())
        lineage = Path(telemetry) if Path(telemetry).is_file() else None
        output.mkdir(parents=True, exist_ok=True)
        entries, away = [], ""
        for workload in workloads:
            failed = failure(gated / workload)
            if failed:
                entries.append({"workload": workload, "status": "failed", "message": failed["message"],
                                "step": failed["step"]})
                continue
            if not away:
                try:
                    entries.append(_register_one(registry, configuration.home, workload, gated / workload,
                                                 champions[workload], lineage, scheduled))
                    continue
                except UnavailableError as error:  # each of the others would wait for it as long
                    away = str(error)
            entries.append({"workload": workload, "status": "error", "message": away})
        write_json(output / REGISTERED, {"entries": entries, "source": source})
        return entries


def _register_one(registry: Any, home: Path, workload: str, folder: Path, champion: dict[str, Any] | None,
                  lineage: Path | None, scheduled: bool) -> dict[str, Any]:
    contract = json.loads((folder / "contract.json").read_text())
    if scheduled and registry.is_known(contract):
        known: dict[str, Any] = {
            "workload": workload, "status": "no new data",
            "message": f"data {contract['data_version'][:12]} and this code are registered already"}
        if standing := registry.champion(contract["task"], workload):
            _keep(registry, home, contract, standing, known)
        return known
    command = json.loads((folder / "evidence.json").read_text())["reproduce"]["command"]
    try:
        made = registry.register(folder, champion=champion, data_path=lineage, command=command)
    except UnavailableError:
        raise
    except AssayError as error:
        # nothing of it is registered; the other workloads go on
        return {"workload": workload, "status": "error", "message": str(error)}
    status = "unchanged" if not made.is_new else "registered" if made.gates_passed else "rejected"
    entry = {"workload": workload, **asdict(made), "message": made.reason, "status": status}
    entry["drifts"] = [str(drift) for drift in made.drifts]
    entry["message"] += "".join(f"; note: {drift}" for drift in made.drifts if not drift.repaired)
    if made.gates_passed:
        _keep(registry, home, contract, made.version, entry, folder if made.is_new else None)
    return entry


def _keep(registry: Any, home: Path, contract: dict[str, Any], version: int, entry: dict[str, Any],
          folder: Path | None = None) -> None:
    """Sees that there is a copy of a version's bundle, and says so in the entry. folder: with its files, else they come
    of the registry."""
    try:
        kept = kept_bundle(home, contract["task"], contract["workload"], version)
        if folder is not None:
            keep_bundle(folder, kept)
        elif not kept.is_dir():  # the run that registered it died before it made the copy
            registry.download_bundle(contract["task"], contract["workload"], kept, version)
        entry["bundle"] = str(kept)
    except (AssayError, OSError) as error:  # the registry holds it whole: a copy that is missing loses nothing
        entry["message"] += f"; no copy of version {version} in {home / 'bundles'}: {error}"
