"""The error that a reader of a run asks for first, in units that mean something to them.

Of a model of telemetry: the mean absolute error on the test rows, in the target's unit. Of a model learned from few
runs, whose target is a logarithm: the mean absolute percentage error over the configurations that it was not given.

Flow: pages.py puts it into the pages, and into the run's summary, which the command line prints.
"""

from collections.abc import Mapping
from typing import Any

from models.metrics import finite_number
from models.reporting.reading import at, mapping

PERCENTAGE = "mean absolute percentage error"
ABSOLUTE = "mean absolute error"


def task_error(evidence: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """{"name", "unit", "value", "twin", "baseline", "share"}; None where it was not measured.

    value, twin and baseline are in `unit`, None where there is none. share: the value over the range of the training
    target (an absolute error) or over the target itself (a percentage error): comparable between workloads.
    """
    metrics = mapping(evidence, "metrics")
    share = finite_number(metrics.get("test_mape"))
    if share is not None:
        return _error(PERCENTAGE, "%", 100.0, metrics, "mape")
    low, high = (finite_number(at(evidence, "target", key)) for key in ("minimum", "maximum"))
    if finite_number(metrics.get("test_mae")) is None or low is None or high is None or high <= low:
        return None
    return _error(ABSOLUTE, str(at(evidence, "target", "unit") or ""), high - low, metrics, "mae")


def _error(name: str, unit: str, one: float, metrics: Mapping[str, Any], key: str) -> dict[str, Any]:
    """one: what a share of 1 is in `unit`."""
    shares = {label: finite_number(metrics.get(f"{prefix}_{key}"))
              for label, prefix in (("value", "test"), ("twin", "twin_test"), ("baseline", "baseline"))}
    return {"name": name, "unit": unit, "share": shares["value"],
            **{label: None if share is None else share * one for label, share in shares.items()}}
