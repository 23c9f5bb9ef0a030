"""The report's plots: each takes plain arrays and returns markup.

Flow: sections.py cleans the evidence into arrays (NaN: missing) and calls these; figures.py embeds.

Symbols: epochs (e,); measured, predicted (m,) target units; x (p,) raw units of a feature; pearson (w, k) in -1..1.
Source: vPALs, figures 2 (correlation), 5 (loss and verification) and 6 (accuracy).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from models.metrics import finite_number
from models.reporting.figures import (
    INK,
    SOFT,
    UNVERIFIED,
    VERIFIED,
    VERIFIER_ACTIVE,
    embed,
    logarithmic,
    plain,
)
from models.reporting.formatting import coefficient, duration

FloatArray = NDArray[np.float64]

FULL_WIDTH = 7.2  # inches
PANEL_WIDTH = 3.2
SCATTER_WIDTH = 4.1
LOG_FROM = 30.0  # a target that spans more than this factor is shown on logarithmic axes
RASTER_FROM = 400  # more points than this become an image inside of the SVG
MOST_POINTS = 4000  # of a scatter plot; the eye tells no more apart
LABEL_GAP = 0.1  # least distance of two labels over the loss curve, share of its width
MOST_STAGES = 30
DASHED = (0, (4, 1.5))


@dataclass(frozen=True)
class Activation:
    """The verifier ran after `epoch`, with this outcome."""

    epoch: float
    status: str
    counterexamples: int | None


def loss_curve(epochs: FloatArray, loss: FloatArray, twin_loss: FloatArray, activations: Sequence[Activation],
               name: str) -> Markup:
    """Training loss over the epochs, a band where the verifier was active (vPALs, figure 5)."""
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        span = max(float(np.nanmax(epochs)), *(a.epoch for a in activations), 1.0)
        width = max(0.012 * span, 0.1)
        for k, activation in enumerate(activations):
            axes.axvspan(activation.epoch, activation.epoch + width, color=VERIFIER_ACTIVE, lw=0, zorder=0.5,
                         label="verifier active" if k == 0 else None)
        for values, colour, dash, label in ((twin_loss, UNVERIFIED, DASHED, "unverified twin"),
                                            (loss, VERIFIED, "-", "verified")):
            shown = np.where(values > 0, values, np.nan)
            if np.isfinite(shown).any():
                axes.plot(epochs, shown, color=colour, ls=dash, label=label,
                          marker="o" if len(epochs) == 1 else None)
        positive = np.concatenate([loss, twin_loss])
        positive = positive[np.isfinite(positive) & (positive > 0)]
        if len(positive):
            logarithmic(axes, "y", float(positive.min()), float(positive.max()))
        axes.set_xlim(0, span + 2 * width)
        axes.set(xlabel="epoch", ylabel="training loss (MSE, scaled target)")
        _label_activations(axes, activations, width, span + 2 * width)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=3)

    return embed(draw, FULL_WIDTH, 3.5, name, "Training loss over the epochs of the verified learner and its "
                 "unverified twin, with bands where the verifier was active")


def _label_activations(axes: Axes, activations: Sequence[Activation], width: float, span: float) -> None:
    """Outcome and number of counterexamples above the bands; where they stand too close, the last one counts."""
    occupied: list[float] = []
    for activation in sorted(activations, key=lambda a: -a.epoch):
        centre = (activation.epoch + width / 2) / span
        if any(abs(centre - other) < LABEL_GAP for other in occupied):
            continue
        occupied.append(centre)
        found = "" if activation.counterexamples is None else f"\n{activation.counterexamples:,} found"
        side = "right" if centre > 1 - LABEL_GAP / 2 else "left" if centre < LABEL_GAP / 2 else "center"
        axes.text(min(max(centre, 0.0), 1.0), 1.02, plain(activation.status) + found, transform=axes.transAxes,
                  ha=side, va="bottom", fontsize=8, color=SOFT)


def partial_dependence(x: FloatArray, verified: FloatArray, unverified: FloatArray, sign: int, labels: tuple[str, str],
                       limits: tuple[float, float] | None, name: str) -> Markup:
    """The prediction along one feature, the others held; thick where the twin goes against the specification.

    Args:
        sign: +1 where the prediction must not fall, -1 where it must not rise, 0 where nothing is required.
        labels: of the x and the y axis.
        limits: of the y axis, shared by the panels; None: as the data is.
    """
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        order = np.argsort(x)
        known = np.concatenate([verified, unverified])
        known = known[np.isfinite(known)]
        span = float(np.ptp(known)) if len(known) else 0.0
        for values, colour, dash in ((unverified, UNVERIFIED, DASHED), (verified, VERIFIED, "-")):
            along, curve = x[order], values[order]
            axes.plot(along, curve, color=colour, ls=dash)
            wrong = sign * np.diff(curve) < -1e-3 * span  # a smaller step could not be seen
            for k in np.flatnonzero(wrong):
                axes.plot(along[k:k + 2], curve[k:k + 2], color=colour, lw=5, alpha=0.35, solid_capstyle="round")
        if limits is not None:
            axes.set_ylim(*limits)
        axes.set(xlabel=plain(labels[0]), ylabel=plain(labels[1]))
        axes.locator_params(nbins=5)

    return embed(draw, PANEL_WIDTH, 2.5, name, f"Prediction along {labels[0]}, verified and unverified")


def predicted_against_measured(measured: FloatArray, predicted: FloatArray, verified: bool, title: str, unit: str,
                               tolerance: float | None, limits: tuple[float, float, bool], name: str) -> Markup:
    """A point for each test row; the line is the perfect prediction, the band the tolerance of the accuracy.

    Args:
        measured, predicted: (m,), m > 0; of more than MOST_POINTS, every second, third, ... is drawn.
        tolerance: half width of the band, target units; None: no band.
        limits: lowest and highest value of both axes, and whether they are logarithmic. Points below are drawn
            at the edge.
    """
    low, high, logs = limits
    step = -(-len(measured) // MOST_POINTS)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot(box_aspect=1)
        if logs:
            logarithmic(axes, "x", low, high)
            logarithmic(axes, "y", low, high)
        line = np.geomspace(low, high, 100) if logs else np.array([low, high])
        if tolerance is not None:
            axes.fill_between(line, np.maximum(line - tolerance, low), line + tolerance, color="#e9edf2", lw=0)
        axes.scatter(measured[::step], np.clip(predicted, low, high)[::step], s=7, lw=0, alpha=0.45,
                     marker="o" if verified else "^", color=VERIFIED if verified else UNVERIFIED,
                     rasterized=len(measured) > RASTER_FROM)
        axes.plot(line, line, color=INK, lw=0.9)
        axes.set(xlim=(low, high), ylim=(low, high), xlabel=plain(f"measured ({unit})"),
                 ylabel=plain(f"predicted ({unit})"), title=plain(title))
        if not logs:
            axes.locator_params(nbins=5)

    return embed(draw, SCATTER_WIDTH, 4.1, name, f"Predicted against measured, {title}")


def heat_map_width(metrics: int) -> float:
    """Inches, for that many columns."""
    return min(max(2.6 + 0.72 * metrics, 4.0), 9.0)


def correlation_heat_map(workloads: Sequence[str], metrics: Sequence[str], pearson: FloatArray, name: str) -> Markup:
    """Pearson coefficient of each workload's target with each metric (vPALs, figure 2).

    The pages of a run's workloads all show the same one: it is drawn once.
    """
    coefficients = np.asarray(pearson, dtype=np.float64).tobytes()
    return _correlation_heat_map(tuple(workloads), tuple(metrics), coefficients, name)


@lru_cache(maxsize=4)
def _correlation_heat_map(workloads: tuple[str, ...], metrics: tuple[str, ...], coefficients: bytes,
                          name: str) -> Markup:
    """coefficients: the float64 numbers of pearson (w, k)."""
    pearson = np.frombuffer(coefficients).reshape(len(workloads), len(metrics))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.grid(visible=False)
        axes.set_facecolor("#eceff3")
        image = axes.imshow(np.ma.masked_invalid(pearson), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(pearson):
            known = bool(np.isfinite(value))
            axes.text(column, row, coefficient(value) if known else "none", ha="center", va="center", fontsize=8.5,
                      color="white" if known and abs(value) > 0.6 else INK,
                      fontweight="bold" if known and abs(value) >= 0.5 else "normal")
        axes.set_xticks(range(len(metrics)), [plain(m) for m in metrics], color=INK, rotation=20, ha="right",
                        rotation_mode="anchor")
        axes.set_yticks(range(len(workloads)), [plain(w) for w in workloads], color=INK)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axes, ticks=[-1, -0.5, 0, 0.5, 1], shrink=0.9)
        bar.outline.set_visible(False)

    return embed(draw, heat_map_width(len(metrics)), 1.1 + 0.36 * len(workloads), name,
                 "Pearson correlation of each workload's target with each metric")


def stage_times(stages: Sequence[Mapping[str, Any]], seconds: FloatArray, name: str) -> Markup:
    """A bar for each stage, in order; with more than MOST_STAGES the longest of them."""
    longest = np.argsort(-np.nan_to_num(seconds, nan=-1.0), kind="stable")[:MOST_STAGES]
    kept = sorted(int(k) for k in longest)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.grid(axis="y", visible=False)
        shown = np.nan_to_num(seconds[kept])
        axes.barh(range(len(kept)), shown, 0.68, color=VERIFIED)
        for place, k in enumerate(kept):
            peak = finite_number(stages[k].get("peak_mb"))
            memory = "" if peak is None else f", {peak:,.0f} MB"
            axes.annotate(duration(seconds[k]) + memory, (float(shown[place]), place), (4, 0),
                          textcoords="offset points", va="center", fontsize=8, color=SOFT,
                          bbox={"pad": 0.5, "fc": "white", "lw": 0})
        axes.set_yticks(range(len(kept)), [plain(str(stages[k].get("name", "unnamed"))) for k in kept], color=INK)
        longest_s = max(float(shown.max(initial=0.0)), 1e-3)
        axes.set(xlabel="seconds", ylim=(len(kept) - 0.4, -0.6), xlim=(0, 1.35 * longest_s))

    return embed(draw, FULL_WIDTH, 0.8 + 0.27 * len(kept), name, "Seconds and peak memory of each stage")
