"""Experiment tracking in MLflow: one run a workload and pipeline run; the one tracking module.

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


def log_version(configuration: Configuration, run_id: str, evidence: Mapping[str, Any], report: Path) -> None:
    """Adds the loss curve, the parameters of reproduction and the report to a version's MLflow run."""
    import mlflow
    from mlflow.entities import Metric, Param

    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    client = mlflow.MlflowClient(tracking_uri=configuration.tracking_uri)
    curve = [Metric(name, epoch[name], 0, epoch["epoch"]) for epoch in evidence["history"]["epochs"]
             for name in ("loss", "twin_loss")]
    parameters = {key: value for key, value in evidence["reproduce"].items() if key != "packages"}
    tuned = evidence.get("few_shot", {}).get("pool", {}).get("settings", {})
    parameters |= {f"few_shot.{key}": value for key, value in tuned.items()}
    client.log_batch(run_id, metrics=curve[:1000], params=[Param(k, str(v)) for k, v in parameters.items()])
    client.log_artifact(run_id, str(report))
