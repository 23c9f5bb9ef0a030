"""The table of early training, in the form of Table 5.3 of the thesis."""

from collections.abc import Mapping, Sequence
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
    entries: list[Mapping[str, Any]] = content.get("entries", [])
    if not entries:
        return "*Not measured yet.*"
    rows = [["thesis, from scratch", *(f"{one:+.0f} %" for one in THESIS["cpu_utilization"]),
             *(f"{one:+.0f} %" for one in THESIS["memory_utilization"]),
             *(f"{one:.1f} x" for one in THESIS["violations"]), "", ""]]
    rule = [entry["fallback"] for entry in entries]
    for name in entries[0]["starts"]:
        own = [entry["starts"][name] for entry in entries]
        cells = [f"{100 * (ours / theirs - 1):+.0f} %" for measure_name in MEASURES
                 for ours, theirs in zip(_segments(own, measure_name), _segments(rule, measure_name), strict=True)]
        factors = [f"{ours / max(theirs, 1e-9):.1f} x" for ours, theirs in
                   zip(_segments(own, "violated"), _segments(rule, "violated"), strict=True)]
        at_first = float(np.mean([one["violated"][:FIRST] for one in own]))
        rewards = [float(np.mean(one["reward"])) for one in own]
        rows.append([name, *cells, *factors, f"{100 * at_first:.0f} %",
                     f"{np.mean(rewards):.1f} ± {np.std(rewards):.1f}"])
    at_first = float(np.mean([one["violated"][:FIRST] for one in rule]))
    reward = [float(np.mean(one["reward"])) for one in rule]
    rows.append([f"fallback ({content['fallback']})", *[""] * 12, f"{100 * at_first:.0f} %",
                 f"{np.mean(reward):.1f} ± {np.std(reward):.1f}"])
    quarters = [f"{label}, quarter {quarter}" for label in ("CPU use", "memory use", "violations")
                for quarter in range(1, SEGMENTS + 1)]
    header = ["start", *quarters, f"violating steps, first {FIRST} episodes", "reward an episode"]
    note = paragraph(
        f"{len(entries)} held-out applications, an agent each, {entries[0]['episodes']} episodes of 100 steps; "
        "differences to the fallback on the same episodes; reward: mean ± standard deviation over applications.")
    return f"{table(header, rows)}\n\n{note}"


def _segments(figures: Sequence[Mapping[str, list[float]]], name: str) -> list[float]:
    """Mean of each quarter of the episodes, over applications."""
    values = np.array([one[name] for one in figures])
    return [float(part.mean()) for part in np.array_split(values, SEGMENTS, axis=1)]

