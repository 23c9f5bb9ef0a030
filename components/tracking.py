"""Experiment tracking in MLflow: one MLflow run for each workload of a pipeline run; and where steps get mlflow.yaml.

The run holds what a reviewer wants beside the model version: parameters, metrics, the loss curve, the
lineage of the data, and the HTML report. The registry (serving/registry.py) hangs the version onto it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.configuration import Configuration, load_configuration

CONFIGURATION_VARIABLE = "ASSAY_CONFIG"


def project_configuration() -> Configuration:
    """mlflow.yaml from $ASSAY_CONFIG, or the one beside the packages."""
    default = Path(__file__).resolve().parent.parent / "mlflow.yaml"
    return load_configuration(Path(os.environ.get(CONFIGURATION_VARIABLE, default)))


def log_version(configuration: Configuration, run_id: str, evidence: Mapping[str, Any], chosen: Mapping[str, Any],
                report: Path) -> None:
    """Adds the loss curve, the parameters of reproduction and, last, the report to a version's MLflow run.

    Args:
        evidence: of the version; `history.epochs` has an entry an epoch: its number and losses by name.
        chosen: settings that the run itself chose.

    Raises:
        UnavailableError: MLflow or its artifact store is away.
        AssayError: they do not take it.
    """
    from mlflow.entities import Metric, Param

    from serving.registry import store_errors

    epochs = evidence.get("history", {}).get("epochs", [])
    curve = [Metric(name, value, 0, epoch["epoch"]) for epoch in epochs for name, value in epoch.items()
             if name != "epoch"]
    parameters = {key: value for key, value in evidence["reproduce"].items() if key != "packages"}
    parameters |= chosen
    with store_errors(f"take {report.name}", f"run {run_id}"):
        client = _client(configuration)
        client.log_batch(run_id, metrics=curve, params=[Param(k, str(v)) for k, v in parameters.items()])
        client.log_artifact(run_id, str(report))


def run_without_page(configuration: Configuration, contract: Mapping[str, Any], page: str) -> str | None:
    """The MLflow run of a version with this model, data, code and seed that has no page yet; None: there is none.

    Args:
        contract: content of the new bundle's contract.json.
        page: the page's file name.

    Raises:
        UnavailableError: as `log_version`.
    """
    from serving.registry import store_errors

    model = configuration.model_name(contract["task"], contract["workload"])
    wanted = {key: str(contract[key]) for key in ("data_version", "code_version", "seed")}
    wanted["model_sha256"] = contract["model"]["sha256"]
    with store_errors("list pages", model):
        client = _client(configuration)
        for version in client.search_model_versions(f"name = '{model}'"):
            if wanted.items() <= version.tags.items() and page not in {
                    item.path for item in client.list_artifacts(version.run_id)}:
                return str(version.run_id)
    return None


def _client(configuration: Configuration) -> Any:
    import mlflow

    return mlflow.MlflowClient(tracking_uri=configuration.tracking_uri)
