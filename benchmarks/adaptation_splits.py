"""Data sets and splits of benchmarks/adaptation.py: what is in the pool, what is measured of a new workload, and what
is predicted.

    workload       half of the workloads are the pool, the others are new (50/50, as in the thesis's Table 5.5)
    algorithm      as workload, but all workloads of one algorithm are on one side
    provider       as workload, and the pool knows nothing of one value of a category of the configuration; new ones
                   are measured and predicted there alone
    configuration  as workload, and the pool knows half of the configurations; new workloads are measured under known
                   ones and predicted under the others

Splits are by workload, never by row. Symbols: W workloads, C configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from feature_store.errors import InputError, nearest
from feature_store.measurement_mapping import load_measurement_mapping
from feature_store.measurements import Measurements, load_measurements
from models.adaptation.contract import IntArray, Pool
from models.adaptation.encoding import Table, table_of

MAPPINGS = Path(__file__).resolve().parent.parent / "examples" / "sizing"
SPLITS = ("workload", "algorithm", "provider", "configuration")


@dataclass(frozen=True)
class DataSet:
    """file: below the folder of public data. provider: the category that the provider split holds out."""

    name: str
    file: str
    provider: str


DATA_SETS: Mapping[str, DataSet] = {one.name: one for one in (
    DataSet("cloudbandit", "cloudbandit/multi-cloud-configuration.csv", "provider"),
    DataSet("scout", "scout/scout_from_bbo_arena_random_search.csv", "type"),
)}


@dataclass(frozen=True)
class Loaded:
    """measurements, their table, and the group of each workload by name of the group column: (W,)."""

    measurements: Measurements
    table: Table
    groups: Mapping[str, np.ndarray]


def load(data: str, folder: Path) -> Loaded:
    """A data set by its name in DATA_SETS, or by the path of a mapping beside which FILE.csv stands under `folder`."""
    if data not in DATA_SETS:
        raise InputError(f"data set must be one of {', '.join(DATA_SETS)}, got {data!r}; {nearest(data, DATA_SETS)}")
    chosen = DATA_SETS[data]
    return loaded(folder / chosen.file, MAPPINGS / f"{data}.yaml")


def loaded(file: Path, mapping: Path) -> Loaded:
    """Any file of measurements with its mapping."""
    measurements = load_measurements(file, load_measurement_mapping(mapping))
    table = table_of(measurements)
    first = measurements.frame.groupby("workload").first()
    groups = {rule.name: first.loc[list(table.workloads), rule.name].to_numpy()
              for rule in measurements.mapping.groups}
    return Loaded(measurements, table, groups)


@dataclass(frozen=True)
class Split:
    """pool: what learners are fitted to. new: workloads to predict, as rows of the table. support, target (C,): under
    which configurations they may be measured, and are predicted."""

    pool: Pool
    new: IntArray
    support: np.ndarray
    target: np.ndarray


def split(data: Loaded, kind: str, seed: int, provider: str) -> Split:
    """See the module docstring.

    Raises:
        InputError: the data have no such group or category, or the split leaves a side empty.
    """
    rng = np.random.default_rng(seed)
    everything = data.table.pool
    configurations = len(everything.x)
    every = np.ones(configurations, dtype=bool)
    known, support, target = every, every, every
    if kind == "algorithm":
        if "algorithm" not in data.groups:
            raise InputError("mapping must have the group `algorithm` for this split")
        names = rng.permutation(np.unique(data.groups["algorithm"]))
        rows = np.flatnonzero(np.isin(data.groups["algorithm"], names[: len(names) // 2]))
    else:
        rows = np.sort(rng.permutation(everything.workloads)[: everything.workloads // 2])
    new = np.setdiff1d(np.arange(everything.workloads), rows)
    if kind == "provider":
        if provider not in data.table.configurations:
            raise InputError(f"configuration must have the column {provider!r} for this split")
        values = data.table.configurations[provider].to_numpy()
        held_out = rng.permutation(np.unique(values))[0]
        support = target = values == held_out
        known = ~support
    elif kind == "configuration":
        known = np.isin(np.arange(configurations), rng.permutation(configurations)[: configurations // 2])
        support, target = known, ~known
    pool = everything.part(rows)
    pool = replace(pool, y=np.where(known, pool.y, np.nan), runs=np.where(known, pool.runs, 0),
                   metrics=np.where(known[:, None], pool.metrics, np.nan))
    there = ~np.isnan(everything.y[new])
    usable = ((there & support).sum(axis=1) >= 3) & ((there & target).sum(axis=1) >= 4)
    pool = pool.part(np.flatnonzero((~np.isnan(pool.y)).any(axis=1)))
    if pool.workloads < 2 or not usable.any():
        raise InputError(f"split {kind!r} must leave workloads on both sides, got {pool.workloads} and "
                         f"{int(usable.sum())}")
    return Split(pool, new[usable], support, target)
