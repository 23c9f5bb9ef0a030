"""The reports of supervised models: training, accuracy beside the unverified twin, curves, predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.metrics import SHARE_UNIT, finite_number
from models.reporting.document import Cell, Facts, Part, figures
from models.reporting.formatting import number, percent
from models.reporting.reading import at, mapping
from models.tasks.pages import Claim, Columns, Figure, Paired, TitledSection, paired, same_cases_of
from models.tasks.supervised import curve_sections, model_sections
from models.tasks.supervised.task_error import task_error

Json = Mapping[str, Any]
ACCURACIES = ("test_accuracy", "twin_test_accuracy", "counterexample_accuracy", "twin_counterexample_accuracy")


class SupervisedPages:
    """Implements `Pages`."""

    def headline(self, evidence: Json | None, gates: Json | None) -> Facts:
        """Error, what it is beside the baseline, the price of the proof, accuracy, time."""
        return model_sections.headline_facts(evidence, gates)

    def claims(self, evidence: Json | None) -> Sequence[Claim]:
        """None beside the specification."""
        return ()

    def paired(self, evidence: Json) -> Sequence[Paired]:
        """Squared errors; of a measured target (no logarithm) absolute errors and the rows predicted right, too."""
        cases = same_cases_of(evidence)
        decides, tolerance = paired(cases, "test row"), model_sections.tolerance(evidence)
        unit = str(at(evidence, "target", "unit") or "")
        if "test_mape" in mapping(evidence, "metrics") or decides.unit != f"{unit}²" or tolerance is None:
            return (decides,)
        version, champion = (np.sqrt(np.abs(values)) for values in (decides.version, decides.champion))
        right = [(values <= tolerance).astype(np.float64) for values in (version, champion)]
        return (decides, Paired("absolute error", unit, "smaller", version, champion, decides.case, decides.block),
                Paired(f"within {number(tolerance, unit)}", SHARE_UNIT, "larger", right[0], right[1], decides.case,
                       decides.block))

    def worst(self, evidence: Json | None) -> tuple[Part, ...]:
        """The test rows with the largest errors, and how many rows lie outside of the box."""
        return model_sections.worst(evidence)

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """How training went, and how good the model is."""
        return (
            ("training", "Training and verification", model_sections.training(evidence, page)),
            ("accuracy", "Verified against unverified", model_sections.accuracy(contract, evidence, scaling)),
            ("curves", "Along each monotone feature", curve_sections.partial_dependence(evidence, page)),
            ("predictions", "Predicted against measured", curve_sections.predictions(evidence, page)))

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        """None."""
        return ()

    def columns(self, entries: Sequence[Json]) -> Columns:
        """Errors and accuracies, verified and unverified."""
        errors = sorted({found["name"] for entry in entries for found in [task_error(entry.get("evidence"))] if found})
        halves = sorted({model_sections.accuracy_tolerance(entry["evidence"])
                         for entry in entries if entry.get("evidence")})
        right = f" within {' or '.join(number(half) for half in halves)} of the scaled target" if halves else ""
        return Columns(
            (("Test error", 3), ("Test accuracy", 2), ("Counterexamples", 2)),
            ("Verified", "Unverified", "Baseline", "Verified", "Unverified", "Verified", "Unverified"),
            f"Error: {' or '.join(errors) or 'not measured'}, on test rows; accuracy: share of them predicted{right}; "
            "counterexamples: share of those found on the way that it gets right.")

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        """Of the model, the unverified twin and the baseline."""
        error, metrics = task_error(evidence), mapping(evidence, "metrics")
        errors = [number(None)] * 3 if error is None else [
            "" if error[key] is None else number(error[key], error["unit"]) for key in ("value", "twin", "baseline")]
        return tuple(figures([*errors, *(percent(metrics.get(key)) for key in ACCURACIES)]))

    def figures(self, evidence: Json | None) -> tuple[Figure, ...]:
        """The error of the model and of its twin, and the share predicted right."""
        error = task_error(evidence) or {"name": "error", "unit": "", "value": None, "twin": None}
        accuracy = finite_number(mapping(evidence, "metrics").get("test_accuracy"))
        return (
            Figure("error", error["value"], error["unit"], f"the {error['name']} on test rows"),
            Figure("twin's", error["twin"], error["unit"], "the unverified network's"),
            Figure("right", None if accuracy is None else 100 * accuracy, "%",
                   "the share of rows predicted within the task's accuracy_tolerance"))

    def badness(self, evidence: Json | None) -> float | None:
        """The error as a share of the target's range."""
        error = task_error(evidence)
        return None if error is None else error["share"]

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        """None is chosen in the run."""
        return {}
