"""The reports of supervised models: training, accuracy beside the unverified twin, curves, predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.metrics import finite_number
from models.reporting.document import Cell, Facts, Part, figures
from models.reporting.formatting import number, percent
from models.reporting.reading import mapping
from models.tasks.pages import Columns, Figure, TitledSection
from models.tasks.supervised import curve_sections, model_sections
from models.tasks.supervised.task_error import task_error

Json = Mapping[str, Any]
ACCURACIES = ("test_accuracy", "twin_test_accuracy", "counterexample_accuracy", "twin_counterexample_accuracy")


class SupervisedPages:
    """Implements `Pages`."""

    def headline(self, evidence: Json | None) -> Facts:
        """Accuracy, error, counterexamples, time of verification."""
        return model_sections.headline_facts(evidence)

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """How training went, and how good the model is."""
        return (
            ("training", "Training and verification", model_sections.training(evidence, page)),
            ("accuracy", "Verified against unverified", model_sections.accuracy(contract, evidence, scaling, page)),
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

    def details(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                page: str) -> tuple[Part, ...]:
        """The plots."""
        return (*model_sections.training(evidence, page)[:1],
                *model_sections.accuracy(contract, evidence, scaling, page)[:1],
                *curve_sections.partial_dependence(evidence, page),
                *curve_sections.predictions(evidence, page))

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
