"""Measurements simulated from a law that is known: a level, a fall with nodes, and a price of each node."""

import numpy as np
import pandas as pd

from feature_store.measurement_mapping import MeasurementMapping, parse_measurement_mapping
from feature_store.measurements import measurements_of
from models.adaptation.encoding import Table, table_of

PRICE = 0.01  # of a node for a second


def mapping(cost: bool = True) -> MeasurementMapping:
    content = {"workload": {"column": "app"},
               "configuration": {"nodes": {"column": "nodes", "unit": "count"},
                                 "type": {"column": "type", "kind": "category"}},
               "target": {"name": "runtime_s", "column": "seconds", "unit": "s"}}
    return parse_measurement_mapping(content | ({"cost": {"column": "usd"}} if cost else {}), "test")


def frame(workloads: int = 12, noise: float = 0.03, seed: int = 0) -> pd.DataFrame:
    """Every workload under ten configurations: run time level * nodes^-slope, 1.3 times as long on type b."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(workloads):
        level, slope = np.exp(rng.normal(5.0, 0.7)), rng.uniform(0.4, 0.9)
        for nodes in (1, 2, 4, 8, 16):
            for kind, factor in (("a", 1.0), ("b", 1.3)):
                seconds = level * nodes**-slope * factor * np.exp(noise * rng.normal())
                rows.append((f"w{number:02d}", nodes, kind, seconds, seconds * nodes * PRICE))
    return pd.DataFrame(rows, columns=["app", "nodes", "type", "seconds", "usd"])


def table(workloads: int = 12, noise: float = 0.03, seed: int = 0, cost: bool = True) -> Table:
    return table_of(measurements_of(frame(workloads, noise, seed), mapping(cost), "test"))
