"""Types of fields that several written files share."""

from typing import Annotated

from pydantic import AfterValidator, Field

from feature_store.names import LONGEST, is_task_name, is_workload_name, printable

PositiveNumber = Annotated[float, Field(gt=0)]
PositiveShare = Annotated[float, Field(gt=0, lt=1)]
WholeNumber = Annotated[int, Field(ge=0)]
PositiveWholeNumber = Annotated[int, Field(gt=0)]


def _task_name(name: str) -> str:
    if not is_task_name(name):
        raise ValueError(f"expected letters, digits, _ and -, at most {LONGEST} and no - in front, got {name!r}")
    return name


def _workload_name(name: str) -> str:
    if not is_workload_name(name):
        raise ValueError(f"expected letters, digits, _ and -, single dots inside, at most {LONGEST} and no _ or - in "
                         f"front, got {name!r}")
    return name


def _label(text: str) -> str:
    if not text.strip():
        raise ValueError(f"expected a text that is not blank, got {text!r}")
    return _visible(text)


def _visible(text: str) -> str:
    if printable(text) != text:
        raise ValueError("expected no control characters, no marks that change the direction of text and no blank or "
                         f"private-use characters, got {text!a}")
    return text


TaskName = Annotated[str, AfterValidator(_task_name)]
WorkloadName = Annotated[str, AfterValidator(_workload_name)]
ColumnName = Annotated[str, AfterValidator(_label)]  # of a column: it is only printed
Unit = Annotated[str, AfterValidator(_visible)]  # may be empty
Text = Annotated[str, Field(min_length=1)]
