"""The recorder's own CPU share, as it measured itself while it recorded (the data card beside the telemetry)."""

import json
from typing import Any

from benchmarks.harness.isolation import Context
from benchmarks.harness.quantity import below, quantity
from benchmarks.pipeline.sizes import Sizes

GOAL_CORES = 0.05


def measure(sizes: Sizes, context: Context) -> dict[str, Any]:
    """Reads card.json. Raises FileNotFoundError where the telemetry has no card."""
    path = context.telemetry.with_name("card.json")
    if not path.is_file():
        raise FileNotFoundError("telemetry must have its data card (card.json) beside it")
    card = json.loads(path.read_text())
    shares = card["recorder_core_share"]
    return {
        "quantities": {"cores": quantity("recorder, Prometheus and node exporter while they record", "cores",
                                         [shares["sum"]], below(GOAL_CORES))},
        "details": {"what": "mean over the whole campaign, measured by the recorder while it recorded",
                    "cores": shares, "combinations": card["combinations"], "recorded_utc": card["recorded_utc"]}}
