"""From a drawing function to markup that stands inside of a page: style, palette, reproducible SVG.

Flow: plots.py draws on the Figure that `embed` hands over; document.py puts the result into the page.
Colours are those of Okabe and Ito (Color Universal Design, 2008), which colour-blind readers tell apart; every
pair that must be told apart differs in dash or marker, too.
"""

import base64
import html
import io
import re
import warnings
from collections.abc import Callable
from typing import Literal

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

VERIFIED = "#0072b2"
UNVERIFIED = "#d55e00"
BASELINE = "#7f8794"
VERIFIER_ACTIVE = "#f0d264"
INK = "#1c2430"
SOFT = "#556070"

# An SVG up to this size stays one; a larger one (very many marks) is held against a PNG. About 5 plots of this
# size fit into half a report of 700 KB.
SVG_LIMIT_BYTES = 70_000
RASTER_DPI = 130
LONGEST_LABEL = 40

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs on every machine
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa3af",
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,  # one glyph less to embed
    "grid.color": "#e4e8ed",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",  # readers need no font
    "svg.hashsalt": "assay",  # the same ids, so the same bytes, for the same data
}


def embed(draw: Callable[[Figure], None], width: float, height: float, name: str, description: str) -> Markup:
    """Draws on a figure of width x height inches and returns SVG to stand in HTML, or a PNG where that is smaller.

    Args:
        draw: puts axes and marks on the figure.
        name: distinct within the page: it goes before every id, so that two plots never share one.
        description: what the plot shows, for readers who cannot see it.
    """
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        # a name in a script that the font lacks is drawn as boxes; the tables spell it out
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure = Figure(figsize=(width, height), layout="constrained", dpi=RASTER_DPI)
        FigureCanvasAgg(figure)
        draw(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", dpi=RASTER_DPI, metadata={"Date": None, "Creator": None})
        svg = _inline(buffer.getvalue().decode(), name, description)
        if len(svg) <= SVG_LIMIT_BYTES:
            return Markup(svg)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=RASTER_DPI, metadata={"Software": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    tag = f'<img alt="{html.escape(description)}" src="data:image/png;base64,{image}">'
    return Markup(tag if len(tag) < len(svg) else svg)


def _inline(document: str, name: str, description: str) -> str:
    """The svg element alone, of no fixed size, its ids made distinct, with a description."""
    svg = document[document.index("<svg"):]
    # its style element would hold for the whole page (report.css has the rule), the ids of groups are of no use
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    prefix = re.sub(r"[^A-Za-z0-9]", "-", name)
    # a hundredth of a point is enough, and a third of the bytes
    svg = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    opening, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    attributes = f'{box.group() if box else ""} role="img" aria-label="{html.escape(description)}"'
    return f"<svg {attributes}>" + re.sub(r">\s+<", "><", rest).strip()


def plain(text: str) -> str:
    """Text of the data for a plot: a dollar sign starts no formula, what is too long for a label is cut."""
    shown = text if len(text) <= LONGEST_LABEL else text[:LONGEST_LABEL - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return shown.replace("$", r"\$").replace("\n", " ")


def logarithmic(axes: Axes, side: Literal["x", "y"], low: float, high: float) -> None:
    """A logarithmic axis with numbers written out; ticks at 1, 2, 5 where a decade tick alone would be too few."""
    axes.set(**{f"{side}scale": "log"})
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 3000 * low else (1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())
