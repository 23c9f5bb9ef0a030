"""The table of early training, in the form of Table 5.3 of the thesis."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness.markdown import paragraph, table

MEASURES = ("cpu_utilization", "memory_utilization")
FIRST = 5  # episodes of the beginning
SEGMENTS = 4
THESIS = {"cpu_utilization": (-32.3, -42.9, -22.1, -10.0), "memory_utilization": (-28.8, -30.5, -26.5, -7.8),
          "violations": (56.1, 22.2, 12.7, 10.1)}


def early_table(content: Mapping[str, Any]) -> str:
    """One row a start: the four segments as Table 5.3 has them."""
    rows = [["thesis, from scratch", "", *(f"{one:+.0f} %" for one in THESIS["cpu_utilization"]),
             *(f"{one:+.0f} %" for one in THESIS["memory_utilization"]),
             *(f"{one:.1f} x" for one in THESIS["violations"]), "", ""]]
    by_start: dict[str, dict[int, Mapping[str, list[float]]]] = {}
    for entry in content["entries"]:
        by_start.setdefault(entry["start"], {})[entry["application"]] = entry["figures"]
    rule = by_start.pop(content["fallback"])
    for name, own in by_start.items():
        beside = [rule[application] for application in own]
        cells = [f"{100 * (ours / theirs - 1):+.0f} %" for measure in MEASURES for ours, theirs in
                 zip(_segments(own.values(), measure), _segments(beside, measure), strict=True)]
        factors = [f"{ours / max(theirs, 1e-9):.1f} x" for ours, theirs in
                   zip(_segments(own.values(), "violated"), _segments(beside, "violated"), strict=True)]
        rows.append([name, str(len(own)), *cells, *factors, *_overall(own.values())])
    rows.append([f"fallback ({content['fallback']})", str(len(rule)), *[""] * 12, *_overall(rule.values())])
    quarters = [f"{label}, quarter {quarter}" for label in ("CPU use", "memory use", "violations")
                for quarter in range(1, SEGMENTS + 1)]
    header = ["start", "applications", *quarters, f"violating steps, first {FIRST} episodes", "reward an episode"]
    note = paragraph(
        f"Held-out applications, an agent each, {content['asked']['episodes']} episodes of 100 steps; "
        "differences to the fallback on the same episodes; reward: mean ± standard deviation over applications.")
    return f"{table(header, rows)}\n\n{note}"


def _segments(figures: Iterable[Mapping[str, list[float]]], name: str) -> list[float]:
    """Mean of each quarter of the episodes, over applications."""
    values = np.array([one[name] for one in figures])
    return [float(part.mean()) for part in np.array_split(values, SEGMENTS, axis=1)]


def _overall(figures: Iterable[Mapping[str, list[float]]]) -> list[str]:
    """Violating steps of the first episodes, and the reward of an episode with its spread over applications."""
    chosen = list(figures)
    rewards = [float(np.mean(one["reward"])) for one in chosen]
    at_first = float(np.mean([one["violated"][:FIRST] for one in chosen]))
    return [f"{100 * at_first:.0f} %", f"{np.mean(rewards):.1f} ± {np.std(rewards):.1f}"]
