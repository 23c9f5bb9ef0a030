"""What of a result file is shown on the pages: tables between marks, pictures, a line in README's table of tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.markdown import NOT_MEASURED, table


@dataclass(frozen=True)
class Plot:
    """A picture of a result file.

    Attributes:
        results: name of the file.
        draw: called with the content (`whole`) or that of `needs`, and the path.
        path: from the repository on.
        needs: key without which there is nothing to draw ("a.b" of a part).
    """

    results: str
    draw: Callable[[Any, Path], None]
    path: str
    needs: str = "entries"
    whole: bool = True

    def content(self, results: Mapping[str, Any]) -> Any:
        """What is drawn of the result file; None where that is not there."""
        part: Any = results
        for key in self.needs.split("."):
            part = part.get(key) or {}
        return (results if self.whole else part) if part else None


@dataclass(frozen=True)
class Source:
    """A table's result file and how it is made from it.

    Attributes:
        results: name of the file.
        render: called with its content.
        needs: key without which nothing is measured yet.
    """

    results: str
    render: Callable[[Mapping[str, Any]], str]
    needs: str = "entries"

    def shown(self, content: Mapping[str, Any] | None) -> str:
        """The table; "" without a result file."""
        if not content:
            return ""
        return self.render(content) if content.get(self.needs) else NOT_MEASURED


@dataclass(frozen=True)
class Headline:
    """A task's line in README's table of tasks.

    Attributes:
        task: its name; system: what is predicted or set, in words.
        results: names of the files that `render` is called with, one after the other.
        render: makes the headline, and the verdict of what ships.
        page: where more is said, from the repository on.
    """

    task: str
    system: str
    results: tuple[str, ...]
    render: Callable[..., tuple[str, str]]
    page: str


def tasks_table(headlines: Sequence[Headline], results: Mapping[str, Any]) -> str:
    """A row a task whose result files are there."""
    rows = [[f"`{one.task}`", one.system, *one.render(*contents), f"[{Path(one.page).stem}]({one.page})"]
            for one in headlines if all(contents := [results.get(name) for name in one.results])]
    return table(["task", "what it predicts or sets", "headline", "verdict", "page"], rows) if rows else ""


def verdicts_line(verdicts: Sequence[str]) -> str:
    """How many are PROVED, and what the others are."""
    others = sorted({one for one in verdicts if one != "PROVED"})
    said = f"{sum(one == 'PROVED' for one in verdicts)} of {len(verdicts)}"
    return f"{said} PROVED, the others {', '.join(others)}" if others else f"PROVED, {said}"
