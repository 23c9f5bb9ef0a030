"""A scaling data set that was not recorded but computed: the law itself, with known parameters."""

import json
from pathlib import Path

import pandas as pd

from systems.autoscaling.twin.recorded_applications import points_of
from systems.autoscaling.twin.recorded_law import LawParameters, predict_p99_ms

TRUTHS = {"nginx": LawParameters(1.0, 0.6, 1.0, 0.3), "redis": LawParameters(2.0, 1.5, 0.5, 0.1)}
SETTINGS = {"warm_up_s": 2.0, "point_s": 6.0, "timeout_s": 2.0}
SHAPES = [(0.25, 1, 1), (0.5, 1, 1), (1.0, 1, 1), (0.3, 1, 2), (0.3, 1, 4), (1.5, 2, 1)]
LOADS = (0.15, 0.35, 0.55, 0.7, 0.85, 0.95, 1.2)


def write_campaign(folder: Path) -> Path:
    """A data set of two servers that obey the law, in the folder."""
    tables = []
    for server, truth in TRUTHS.items():
        rows = pd.DataFrame(
            [(*shape, load) for shape in SHAPES for load in LOADS],
            columns=["quota_cores", "workers", "instances", "planned_utilisation"]).astype(float)
        rows["server"], rows["trial"] = server, [f"{server}-{number}" for number in range(len(rows))]
        capacity = rows["instances"] * rows[["quota_cores", "workers"]].min(axis=1) * 1000 / truth.cpu_ms
        rows["offered_per_s"] = rows["planned_utilisation"] * capacity
        rows["completed_per_s"] = rows["offered_per_s"].clip(upper=capacity)
        rows["cpu_cores"] = rows["completed_per_s"] * truth.cpu_ms / 1000
        rows["in_flight"] = 4 * rows["planned_utilisation"] * rows["instances"]
        rows["memory_mib"] = rows["instances"] * 40 + 0.5 * rows["in_flight"]
        rows["latency_p99_ms"] = 1.0
        rows["latency_p99_ms"] = predict_p99_ms(truth, points_of(rows, SETTINGS))
        tables.append(rows)
    pd.concat(tables).to_parquet(folder / "points.parquet", index=False)
    pd.DataFrame({"server": ["nginx", "nginx", "redis"], "event": "start", "took_s": [0.1, 0.3, 1.0],
                  "settled_s": [0.5, 1.5, 4.0]}).to_parquet(folder / "events.parquet")
    card = {"settings": SETTINGS, "recorded_utc": ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"]}
    (folder / "card.json").write_text(json.dumps(card))
    return folder
