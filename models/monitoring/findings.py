"""What a monitor found about one champion, and what is to be done: one function, one table.

When each is found, in words: docs/reference/monitor.md, which a test holds against ASKS_FOR. What asks for most wins.
Where the model itself is worse than promised (WORSE) and the champion before is better by more than luck explains, it
is `roll back` in place of either. `fine` where nothing asks for anything; `no data` where there is too little to look
at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from models.monitoring.chances import WINDOWS

Choice = Literal["fine", "fine-tune", "retrain", "roll back", "no data"]

ERROR_RISEN, ERROR_DOUBLED = 1.1, 2.0  # times the test error
COVERED, MOST_BEYOND = 0.90, 0.15  # share of the test errors; share of new errors that may be beyond it
OFTEN = 0.05  # share of rows or steps

ASKS_FOR: Mapping[str, Choice] = {
    "specification": "retrain", "error": "fine-tune", "error doubled": "retrain", "coverage": "fine-tune",
    "drift": "fine", "drift, no truth": "fine-tune", "outside": "retrain", "unfamiliar": "retrain",
    "reward": "fine-tune", "fallback": "fine-tune", "shield": "fine-tune"}
WORSE = frozenset({"specification", "error", "error doubled", "coverage", "reward", "fallback"})
_ORDER: tuple[Choice, ...] = ("fine", "fine-tune", "retrain")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: of ASKS_FOR.
        found: whether it is so.
        sentence: in words, with figures, whether it is so or not.
        figures: as JSON.
        suspect: it looks so, and so few rows may look so by luck.
    """

    what: str
    found: bool
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    suspect: bool = False


@dataclass(frozen=True)
class Before:
    """The champion before, on the same rows or in the same log. better: by more than luck explains."""

    better: bool
    sentence: str


@dataclass(frozen=True)
class Looked:
    """What came of one look at a champion.

    Attributes:
        rows: new ones, since the last look.
        enough: whether they were looked at; else they wait for the next time.
        findings: in the order in which they are shown.
        before: None: there is no champion before, or nothing of it to compare.
        notes: what was left out, and why, a sentence each.
        memory: what the next look needs to know, as JSON.
    """

    rows: int
    enough: bool
    findings: tuple[Finding, ...] = ()
    before: Before | None = None
    notes: tuple[str, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """What is to be done, and why, in plain words."""

    choice: Choice
    reasons: tuple[str, ...]

    @property
    def asks(self) -> bool:
        """Whether anything is to be done."""
        return self.choice not in ("fine", "no data")


def decide(looked: Looked) -> Decision:
    """By the table above."""
    if not looked.enough:
        return Decision("no data", (f"{looked.rows:,} new, and a look needs {WINDOWS[0]}",))
    found = [one for one in looked.findings if one.found]
    choice: Choice = max((ASKS_FOR[one.what] for one in found), key=_ORDER.index, default="fine")
    reasons = tuple(one.sentence for one in found)
    if looked.before is not None and any(one.what in WORSE for one in found):
        reasons += (looked.before.sentence,)
        if looked.before.better:
            choice = "roll back"
    suspects = [one.sentence for one in looked.findings if one.suspect]
    nothing = "nothing that was looked at has changed by more than luck explains"
    return Decision(choice, reasons or (f"{nothing}, but too few rows to tell: {'; '.join(suspects)}" if suspects
                                        else nothing,))


def incidents(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What must never be, whatever is decided: a proved model that breaks its specification."""
    return tuple(one for one in findings if one.found and one.what == "specification")
