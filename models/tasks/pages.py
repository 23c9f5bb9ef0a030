"""What a kind of task shows of its models: the contract of its part of the reports and of the run's summary.

Whatever is None or absent in what is given is said in words: a page can be made of what a broken run left behind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.metrics import Better
from models.paired_cases import LEFT_OUT, Cases, measured_cases, same_cases, unseen_cases
from models.reporting.document import Cell, Facts, Part

Json = Mapping[str, Any]
# id in the page, title, content
TitledSection = tuple[str, str, tuple[Part, ...]]


@dataclass(frozen=True)
class Figure:
    """A number in a line of the run's summary.

    Attributes:
        name: heading of its column, a word.
        value: None where it was not measured.
        unit: "" for none.
        meaning: what the column is, for the line below the table.
    """

    name: str
    value: float | None
    unit: str
    meaning: str


@dataclass(frozen=True)
class Columns:
    """A part of the overview of a run's workloads.

    Attributes:
        groups: headings above the columns, each with the number of columns that it spans.
        names: of the columns.
        note: what they mean, below the table.
    """

    groups: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Claim:
    """Something that is claimed beside the specification, such as what holds of a closed loop.

    Attributes:
        name: of what is claimed.
        status: of the proof, as of a verdict; whatever is not PROVED is shown as not guaranteed.
        text: what was proved, or why nothing was; without a full stop.
        sentence: to the letter, for those who ask; "" where `text` is.
    """

    name: str
    status: str
    text: str
    sentence: str = ""


@dataclass(frozen=True)
class Paired:
    """A quantity of a version and of the champion, case by case.

    Attributes:
        name: of a value.
        unit: of the values; "share" for shares and for what holds (1) or does not (0).
        better: which values are better.
        version: (n,) of the version.
        champion: (n,) of the champion, of the same cases.
        case: what a case is, in the singular.
        block: least number of neighbours that resemble each other; None: not known.
    """

    name: str
    unit: str
    better: Better
    version: NDArray[np.float64]
    champion: NDArray[np.float64]
    case: str
    block: int | None = None


def same_cases_of(evidence: Json) -> tuple[Cases, Cases]:
    """Of a version and of the champion in its evidence, those that the champion was not trained on.

    Raises:
        InputError: there are none, they contradict their metrics, or they are not the same ones.
    """
    champion = evidence.get("champion")
    measured = champion if isinstance(champion, Mapping) else {}
    new, old = unseen_cases(evidence, measured.get(LEFT_OUT)), measured_cases(measured, evidence)
    if not same_cases(new, old):
        raise InputError("expected a champion that was measured on the same cases, got other cases")
    return new, old


def paired(cases: tuple[Cases, Cases], case: str) -> Paired:
    """What decides about the champion: the cases as they are."""
    new, old = cases
    return Paired(new.quantity, new.unit, new.better, np.array(new.values), np.array(old.values), case,
                  new.block)


class Pages(Protocol):
    """evidence, contract: content of the JSON files, or None. page: prefix of ids in the page."""

    def headline(self, evidence: Json | None, gates: Json | None) -> Facts:
        """The few numbers that a reviewer asks for first, with the limits of their gates."""

    def claims(self, evidence: Json | None) -> Sequence[Claim]:
        """What is claimed beside the specification, proved or not; nothing that was tried is left out."""

    def paired(self, evidence: Json) -> Sequence[Paired]:
        """What can be compared with the champion case by case, first what decides. Raises InputError: nothing."""

    def worst(self, evidence: Json | None) -> tuple[Part, ...]:
        """The cases in which the version is worst, and what lies outside of the box."""

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """Of a version's report, between the gates and the data."""

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        """Of a run's report, after the overview. entries: as of render_run_report."""

    def columns(self, entries: Sequence[Json]) -> Columns:
        """Of the overview, between status and verdict."""

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        """One workload's cells in these columns."""

    def figures(self, evidence: Json | None) -> tuple[Figure, ...]:
        """One workload's numbers in the run's summary, the first of them the one that matters most."""

    def badness(self, evidence: Json | None) -> float | None:
        """Comparable between workloads, larger is worse: of many workloads the summary shows the worst."""

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        """Settings that were chosen in the run, for MLflow's parameters."""
