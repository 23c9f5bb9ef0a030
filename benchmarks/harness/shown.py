"""What of a result file is shown on the pages: tables between marks, and pictures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Plot:
    """A picture of a result file.

    Attributes:
        results: name of the file.
        draw: called with the content (`whole`) or that of `needs`, and the path.
        path: from the repository on.
        needs: key without which there is nothing to draw.
    """

    results: str
    draw: Callable[[Any, Path], None]
    path: str
    needs: str = "entries"
    whole: bool = True


@dataclass(frozen=True)
class Source:
    """A table's result file and how it is made from it."""

    results: str
    render: Callable[[Mapping[str, Any]], str]
