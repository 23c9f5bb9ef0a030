"""Pictures for the documents, as SVG files that are the same for the same results."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def svg(path: Path, width: float, height: float) -> "Iterator[Figure]":
    """A figure of so many inches in the style of the reports; written where the block ends well."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    from models.reporting.figures import STYLE

    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", facecolor="white", metadata={"Date": None})
