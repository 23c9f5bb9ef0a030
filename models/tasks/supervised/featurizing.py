"""featurize of kinds that learn from telemetry: each workload's rows, split and scaled."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from feature_store.errors import InputError
from feature_store.features import featurize
from feature_store.names import inside
from feature_store.scaling import FeatureScaling
from feature_store.strict_yaml import Lines
from feature_store.written.field_errors import at_line, line_of
from models.tasks.attempts import attempt
from models.tasks.supervised.specifications import raw_specification, trained_orders
from models.tasks.supervised.task import SupervisedTask
from models.verification.language.specification_language import parse_specification


def featurize_telemetry(task: SupervisedTask, samples: Mapping[str, pd.DataFrame],
                        checks: Mapping[str, Sequence[Mapping[str, Any]]], output: Path) -> dict[str, str]:
    """Writes <output>/<workload>/ of each workload of `checks`; workload -> "" or why there is none."""
    def work(name: str) -> None:
        featurize(samples[name], task.telemetry_schema(name), task.test_share, inside(output, name),
                  checks=checks[name])

    status = {name: attempt(partial(work, name)) for name in checks}
    return checked_specifications(task, status, output)


def checked_specifications(task: SupervisedTask, status: Mapping[str, str], output: Path) -> dict[str, str]:
    """The status, with the error of a specification that does not fit the features or cannot be trained for."""
    def work(name: str) -> None:
        scaling = FeatureScaling.from_json((output / name / "scaling.json").read_text())
        trained_orders(raw_specification(task, name, scaling))

    return {name: message or attempt(partial(work, name)) for name, message in status.items()}


# The box of an input of which the data are not known yet: every condition meets it.
ANYTHING = (-1e300, 1e300)


def check_specification(task: SupervisedTask, workload: str, where: str, lines: Lines | None) -> None:
    """Refuses a specification that no data could fit, or that cannot be trained for, before any work.

    Arguments as of `Kind.check` (kind.py).

    Raises:
        InputError: with the workload and, where there is one, the line.
    """
    names = [quantity.name for quantity in task.features(workload)]
    where = f"{where}, workload {workload}"
    below = None if lines is None else lines.below("workloads", workload, "specification")
    try:
        found = parse_specification(task.workload(workload).specification, names, dict.fromkeys(names, ANYTHING), where,
                                    (task.target.name,), lines=below)
    except (TypeError, ValueError) as error:
        raise InputError(f"specification must be of the documented form, got {error} ({where})") from error
    try:
        trained_orders(found)
    except InputError as error:
        raise InputError(f"{error} {at_line(where, line_of(below, ()))}") from error
