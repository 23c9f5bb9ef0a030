"""What a kind of task shows of its models: the contract of its part of the reports and of the run's summary.

Whatever is None or absent in what is given is said in words: a page can be made of what a broken run left behind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


class Pages(Protocol):
    """evidence, contract: content of the JSON files, or None. page: prefix of ids in the page."""

    def headline(self, evidence: Json | None) -> Facts:
        """The few numbers that a reviewer asks for first."""

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """Of a version's report, between the gates and the data."""

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        """Of a run's report, after the overview. entries: as of render_run_report."""

    def columns(self, entries: Sequence[Json]) -> Columns:
        """Of the overview, between status and verdict."""

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        """One workload's cells in these columns."""

    def details(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                page: str) -> tuple[Part, ...]:
        """One workload in the run's report: its plots."""

    def figures(self, evidence: Json | None) -> tuple[Figure, ...]:
        """One workload's numbers in the run's summary, the first of them the one that matters most."""

    def badness(self, evidence: Json | None) -> float | None:
        """Comparable between workloads, larger is worse: of many workloads the summary shows the worst."""

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        """Settings that were chosen in the run, for MLflow's parameters."""
