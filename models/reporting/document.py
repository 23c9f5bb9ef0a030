"""A report as a value: sections of tables, plots and sentences, and the one function that makes it HTML.

Flow: sections.py builds the parts, report.py orders them into a Document, report.html turns it into a page.
Every text is escaped by the template; the only markup that passes is the SVG of figures.py.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

FOLDER = Path(__file__).parent
Tone = Literal["", "good", "bad", "open"]  # open: neither shown nor refuted


@dataclass(frozen=True)
class Badge:
    """A short outcome at a glance; its text says it too, so that colour is never needed."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        numeric: aligned right.
        strong: set apart.
        span: in columns.
        sort: what a table is sorted by in place of the text.
    """

    text: str
    numeric: bool = False
    tone: Tone = ""
    strong: bool = False
    code: bool = False
    link: str = ""
    span: int = 1
    sort: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows under a header (none where its labels are empty); `groups` is a row above it: (label, span).

    A column is aligned as it is in the first full row. One that is `sortable` can be searched, too; rows of fewer cells
    belong to the full one above them.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    note: str = ""
    groups: tuple[tuple[str, int], ...] = ()
    sortable: bool = False

    @property
    def row_groups(self) -> tuple[tuple[tuple[Cell, ...], ...], ...]:
        """Rows that stay together: each full one with those below it; of a table that is not sortable, all."""
        groups: list[list[tuple[Cell, ...]]] = []
        for row in self.rows:
            follows = sum(cell.span > 1 for cell in row) == 1 and not row[0].text
            if not groups or (self.sortable and not follows):
                groups.append([])
            groups[-1].append(row)
        return tuple(map(tuple, groups))

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column, whether it holds numbers."""
        full = [row for row in self.rows if len(row) == len(self.header)]
        return tuple(cell.numeric for cell in full[0]) if full else (False,) * len(self.header)


@dataclass(frozen=True)
class Note:
    """A sentence. `missing` says that something is not there, `bad` that something is wrong."""

    text: str
    kind: Literal["", "missing", "bad", "good", "statement"] = ""


@dataclass(frozen=True)
class Code:
    """Text to copy into a shell."""

    text: str


@dataclass(frozen=True)
class Plot:
    """An SVG or PNG of `width` inches at its natural size, with a sentence that says what it shows."""

    markup: Markup
    width: float
    caption: str = ""


@dataclass(frozen=True)
class Grid:
    """Small plots side by side, as many in a row as fit."""

    plots: tuple[Plot, ...]
    caption: str = ""


@dataclass(frozen=True)
class Facts:
    """A few (label, value, remark) of note, side by side."""

    items: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Fold:
    """Parts that are shut until the reader opens them."""

    title: str
    parts: tuple["Part", ...]
    badges: tuple[Badge, ...] = ()


@dataclass(frozen=True)
class Lines:
    """Short sentences, one a line; the mark before each is that of its tone."""

    items: tuple[tuple[str, Tone], ...]


@dataclass(frozen=True)
class Decision:
    """What the reader came for, in large, and the reasons, one a line."""

    title: str
    tone: Tone
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Beside:
    """Headed groups of parts, side by side where the window is wide, under each other where it is not."""

    groups: tuple[tuple[str, tuple["Part", ...]], ...]


Part = Table | Note | Code | Plot | Grid | Facts | Fold | Lines | Decision | Beside


@dataclass(frozen=True)
class Section:
    """A headed part of the report; `anchor` is its place in the page."""

    anchor: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Document:
    """A whole report; `lead` is its first screen. `wide` prints it in landscape."""

    title: str
    subtitle: str
    badges: tuple[Badge, ...]
    lead: tuple[Part, ...]
    sections: tuple[Section, ...]
    wide: bool = False


def render(document: Document) -> str:
    """The document as one HTML page that asks nothing of the network: style, plots and the one script are inside.

    A page with a sortable table has one script, report.js, and its policy lets a browser run no other.
    """
    style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    if not any(_sortable(part) for section in document.sections for part in section.parts):
        script = ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _environment().get_template("report.html").render(
        document=document, style=Markup(style), script=Markup(script),
        script_policy=Markup(f"; script-src 'sha256-{digest}'") if script else "")


def _sortable(part: Part) -> bool:
    """Whether it is, or has in its fold, a table that the script sorts."""
    return part.sortable if isinstance(part, Table) else isinstance(part, Fold) and any(map(_sortable, part.parts))


@cache
def _environment() -> Environment:
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True)
    environment.filters["kind"] = lambda part: type(part).__name__
    environment.filters["breakable"] = lambda label: escape(label).replace("_", Markup("_<wbr>"))
    environment.filters["ticked"] = _ticked
    return environment


def _ticked(text: str) -> Markup:
    """A sentence, with what stands between backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one is not closed
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(piece) if place % 2 else escape(piece)
                           for place, piece in enumerate(pieces))


def text(value: object) -> Cell:
    """A cell of words; empty for None."""
    return Cell("" if value is None else str(value))


def figures(values: Sequence[str]) -> tuple[Cell, ...]:
    """Cells of formatted numbers, aligned right."""
    return tuple(Cell(value, numeric=True) for value in values)
