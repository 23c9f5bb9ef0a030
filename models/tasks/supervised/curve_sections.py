"""Sections about the predictions: along each monotone feature, and against what was measured.

Flow: as model_sections.py. evidence["curves"] holds partial_dependence (feature -> x, verified, unverified) and
predictions (measured, verified, unverified on the test rows), all in raw units.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.reporting import plots
from models.reporting.document import Grid, Note, Part, Plot
from models.reporting.formatting import count, number, percent
from models.reporting.promises import directions
from models.reporting.reading import at, floats, mapping, together
from models.tasks.supervised.model_sections import accuracy_tolerance, tolerance

Json = Mapping[str, Any]
FloatArray = NDArray[np.float64]
SIGNS = {"increasing": 1, "decreasing": -1}


def partial_dependence(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """Small multiples, one a monotone feature, with one y axis for all."""
    curves = {name: curve for name, curve in mapping(evidence, "curves", "partial_dependence").items()
              if isinstance(curve, Mapping)}
    required = directions(evidence)
    series = {name: together(*(floats(curve.get(key)) for key in ("x", "verified", "unverified")))
              for name, curve in curves.items()}
    usable = {name: values for name, values in series.items()
              if np.isfinite(values[0]).any() and np.isfinite(np.concatenate(values[1:])).any()}
    if not usable:
        return (Note("No partial-dependence curve was recorded.", "missing"),)
    limits = _limits(np.concatenate([np.concatenate(values[1:]) for values in usable.values()]))
    target = _target(evidence)
    panels: list[Plot] = []
    for name, (x, verified, unverified) in usable.items():
        direction = str(curves[name].get("direction") or required.get(name, ""))
        unit = curves[name].get("unit")
        labels = (f"{name} ({unit})" if unit else name, target)
        markup = plots.partial_dependence(x, verified, unverified, SIGNS.get(direction, 0), labels, limits,
                                          f"{page}-along-{len(panels)}")
        panels.append(Plot(markup, plots.PANEL_WIDTH, f"must be {direction} in {name}" if direction in SIGNS else ""))
    parts: list[Part] = [Grid(tuple(panels), "Blue: verified; orange, dashed: unverified twin, thick where it goes "
                              "against the specification. The other inputs are held. A curve is one line through the "
                              "box: a violation may hide from it, the proof covers all lines.")]
    absent = [name for name in {**required, **curves} if name not in usable]
    if absent:
        parts.append(Note(f"No curve was recorded for {', '.join(absent)}.", "missing"))
    return tuple(parts)


def predictions(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """Predicted against measured on the test rows, verified and unverified side by side."""
    recorded = mapping(evidence, "curves", "predictions")
    measured, verified, unverified = (floats(recorded.get(key)) for key in ("measured", "verified", "unverified"))
    if not np.isfinite(measured).any():
        return (Note("No prediction on the test rows was recorded.", "missing"),)
    measured, verified, unverified = together(measured, verified, unverified)
    limits = _axes(np.concatenate([measured, verified, unverified]), measured)
    unit = str(at(evidence, "target", "unit") or "unit not recorded")
    panels, remarks = [], []
    for label, predicted, key in (("verified", verified, "test_accuracy"),
                                  ("unverified twin", unverified, "twin_test_accuracy")):
        known = np.isfinite(measured) & np.isfinite(predicted)
        if not known.any():
            remarks.append(f"The predictions of the {label} model were not recorded.")
            continue
        title = f"{label}, {percent(at(evidence, 'metrics', key))} right"
        markup = plots.predicted_against_measured(measured[known], predicted[known], label == "verified", title, unit,
                                                  tolerance(evidence), limits, f"{page}-{label}-scatter")
        panels.append(Plot(markup, plots.SCATTER_WIDTH))
        below = int((predicted[known] < limits[0]).sum())
        if below:
            remarks.append(f"{count(below, 'prediction')} of the {label} model below {number(limits[0], unit)} "
                           f"stand{'s' if below == 1 else ''} at the lower edge.")
    shown = "" if len(measured) <= plots.MOST_POINTS else f" (at most {plots.MOST_POINTS:,}, evenly chosen)"
    caption = (f"Test rows{shown}. Line: perfect prediction; band: what counts as right (within "
               f"{number(accuracy_tolerance(evidence))} of the scaled target).")
    return (Grid(tuple(panels), " ".join([caption, *remarks])),) if panels else (Note(" ".join(remarks), "missing"),)


def _limits(values: FloatArray) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.06 * (high - low) or max(abs(high), 1.0) * 0.1
    return low - margin, high + margin


def _axes(values: FloatArray, measured: FloatArray) -> tuple[float, float, bool]:
    """Limits of a square of axes, and whether it is logarithmic: where measurements span a large factor.

    Predictions do not set the lower end of a logarithmic axis: a single one near zero would squeeze the rest.
    """
    low, high = float(np.nanmin(measured)), float(np.nanmax(values))
    if low > 0 and float(np.nanmax(measured)) > plots.LOG_FROM * low:
        return low / 1.6, high * 1.3, True
    return *_limits(values), False


def _target(evidence: Json | None) -> str:
    name, unit = at(evidence, "target", "name"), at(evidence, "target", "unit")
    return f"{name or 'prediction'} ({unit})" if unit else str(name or "prediction")
