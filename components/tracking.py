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
    """Adds the loss curve, the parameters of reproduction and the report to a version's MLflow run.

    Args:
        evidence: of the version; `history.epochs` has an entry an epoch: its number and losses by name.
        chosen: settings that the run itself chose.
    """
    import mlflow
    from mlflow.entities import Metric, Param

    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    client = mlflow.MlflowClient(tracking_uri=configuration.tracking_uri)
    epochs = evidence.get("history", {}).get("epochs", [])
    curve = [Metric(name, value, 0, epoch["epoch"]) for epoch in epochs for name, value in epoch.items()
             if name != "epoch"]
    parameters = {key: value for key, value in evidence["reproduce"].items() if key != "packages"}
    parameters |= chosen
    client.log_batch(run_id, metrics=curve[:1000], params=[Param(k, str(v)) for k, v in parameters.items()])
    client.log_artifact(run_id, str(report))
