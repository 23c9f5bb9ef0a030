"""How our cost grows with the width, the depth and the number of inputs of a network, with random weights.

Two costs, each the median over processes of their own:

    proof   a whole verification, checker included, of a network that is monotone by construction as training starts it
            (models/training/sign_pattern.py): one box is the proof, or very few
    box     branch and bound by box on ordinary random (He) weights, where hardly any box can be proved: what a box of a
            long search costs that is split again

Random weights cost what trained ones of the same state cost: bounds are dense products whatever the weights are. What a
proof of a trained network takes is between the two: boxes near their proof are bounded a second time, tighter.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.machine import load_average, now_utc
from benchmarks.harness.power_law import fit_power_law
from benchmarks.harness.result_file import read_results
from benchmarks.verification.campaign_entries import keep_part, tool_code
from benchmarks.verification.campaign_process import Answer, Limits, ask
from benchmarks.verification.networks import TOLERANCE
from benchmarks.verification.peers.question import Question
from models.learners.mlp import build_mlp, linear_layers
from models.training.sign_pattern import initialise
from models.verification.network.fully_connected import ReluNetwork, network_from_torch
from models.verification.verdict import Status

QUERY = (0, 1)
# Spread of the biases, so that kinks lie inside of the box.
BIAS = 0.3
REPEATS = 3
BOXES = 256


@dataclass(frozen=True)
class Series:
    """Networks that differ in one size: axis "width", "depth" or "inputs"; shapes: (inputs, width, depth)."""

    label: str
    axis: str
    shapes: tuple[tuple[int, int, int], ...]

    def size(self, shape: Sequence[int]) -> int:
        return shape[("inputs", "width", "depth").index(self.axis)]


WIDTHS, DEPTHS, INPUTS = (64, 128, 256, 512, 1024, 2048), (2, 3, 4, 6, 8), (2, 4, 8, 16, 32)
SERIES = (
    Series("2 layers, 8 inputs", "width", tuple((8, width, 2) for width in WIDTHS)),
    Series("3 layers, 8 inputs", "width", tuple((8, width, 3) for width in WIDTHS)),
    Series("width 128, 8 inputs", "depth", tuple((8, 128, depth) for depth in DEPTHS)),
    Series("3 layers of 128", "inputs", tuple((inputs, 128, 3) for inputs in INPUTS)),
)
COSTS = {"proof": "assay", "box": "bounds"}


def measure_growth(
    output: Path, limits: Limits, say: Callable[[str], None], series: Sequence[Series] = SERIES,
    repeats: int = REPEATS,
) -> None:
    """Measures what is missing of every series and writes it, with the exponent of each cost, as the part "growth"."""
    code = tool_code("assay")
    before = (read_results(output) or {}).get("growth", {})
    points = [point for point in before.get("points", []) if point["code"] == code]
    for shape in dict.fromkeys(shape for one in series for shape in one.shapes):
        for cost in COSTS:
            if not any(point["shape"] == list(shape) and point["cost"] == cost for point in points):
                points.append({**_measure(shape, cost, limits, repeats), "code": code})
                keep_part(output, "growth", {"points": points, "series": _fits(series, points)})
            known_point = next(point for point in points if point["shape"] == list(shape) and point["cost"] == cost)
            seconds = "failed" if known_point["seconds"] is None else f"{known_point['seconds']:.4g} s"
            say(f"growth {shape[0]} inputs, {shape[2]}x{shape[1]}, {cost}: {seconds}  {known_point['reason']}")
    keep_part(output, "growth", {"points": points, "series": _fits(series, points)})


def random_network(shape: Sequence[int], monotone: bool, seed: int = 0) -> ReluNetwork:
    """A network as training starts it, with biases that spread the kinks; monotone: rising in input 0."""
    inputs, width, depth = shape
    random = torch.Generator().manual_seed(seed)
    network = build_mlp(inputs, [width] * depth, random)
    if monotone:
        initialise(linear_layers(network), [QUERY])
    with torch.no_grad():
        for layer in linear_layers(network):
            layer.bias.normal_(0.0, BIAS, generator=random)
    return network_from_torch(network)


def _measure(shape: Sequence[int], cost: str, limits: Limits, repeats: int) -> dict[str, Any]:
    """seconds: of the proof, or by box; None where the proof failed or fewer boxes than a round were bounded."""
    load = load_average()
    network = random_network(shape, monotone=cost == "proof")
    question = Question(network, *QUERY, np.zeros(shape[0]), np.ones(shape[0]), TOLERANCE)
    limits_of_cost = limits if cost == "proof" else replace(limits, boxes=BOXES)
    answers = [ask(COSTS[cost], [question], limits_of_cost) for _ in range(repeats)]
    values = [_seconds(answer, cost) for answer in answers]
    good = [value for value in values if value is not None]
    return {"shape": list(shape), "cost": cost, "date": now_utc(), "load_average_before": load,
            "seconds": statistics.median(good) if len(good) == len(values) else None, "values": values,
            "boxes": answers[0].boxes, "verdict": answers[0].status, "reason": answers[0].reason,
            "peak_rss_mib": round(max(answer.peak_rss_mib for answer in answers), 1)}


def _seconds(answer: Answer, cost: str) -> float | None:
    if cost == "proof":
        return answer.seconds if answer.status is Status.PROVED else None
    return answer.search_seconds / answer.boxes if answer.boxes >= BOXES else None


def _fits(series: Sequence[Series], points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sizes, seconds and exponent of every series and cost."""
    made = []
    for one in series:
        for cost in COSTS:
            sizes_and_seconds = [(one.size(point["shape"]), point["seconds"]) for point in points
                     if tuple(point["shape"]) in one.shapes and point["cost"] == cost and point["seconds"]]
            sizes, seconds = ([pair[k] for pair in sorted(sizes_and_seconds)] for k in range(2))
            exponent = fit_power_law(sizes, seconds).exponent if len(set(sizes)) > 1 else None
            made.append({"label": one.label, "axis": one.axis, "cost": cost, "sizes": sizes, "seconds": seconds,
                         "exponent": exponent})
    return made
