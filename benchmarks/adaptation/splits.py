"""Data sets and splits of accuracy.py: what is in the pool, what is measured of a new workload, what is predicted.

    workload       half of the workloads are the pool, the others are new (50/50, as in the thesis's Table 5.5)
    algorithm      as workload, but all workloads of one algorithm are on one side
    provider       as workload, and the pool knows nothing of one value of a category of the configuration; new ones
                   are measured and predicted there alone
    configuration  as workload, and the pool knows half of the configurations; new workloads are measured under known
                   ones and predicted under the others

Splits are by workload, never by row, and the pool's noise is that of its own runs.

Symbols: W workloads, C configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.harness.data_folder import required
from feature_store.errors import InputError, nearest
from feature_store.measurement_mapping import load_measurement_mapping
from feature_store.measurements import Measurements, load_measurements
from models.adaptation.encoding import Table, table_of
from models.adaptation.learner import IntArray, Pool

MAPPINGS = Path(__file__).resolve().parents[2] / "examples" / "sizing"
SPLITS = ("workload", "algorithm", "provider", "configuration")


@dataclass(frozen=True)
class DataSet:
    """A public data set.

    Attributes:
        file: below the folder of public data.
        provider: the category that the provider split holds out.
    """

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


def files_of(data: str, folder: Path | None) -> tuple[Path, Path]:
    """The file of measurements under `folder` and the mapping of a data set by its name in DATA_SETS."""
    if data not in DATA_SETS:
        raise InputError(f"data set must be one of {', '.join(DATA_SETS)}, got {data!r}; {nearest(data, DATA_SETS)}")
    return required(folder) / DATA_SETS[data].file, MAPPINGS / f"{data}.yaml"


def load(data: str, folder: Path) -> Loaded:
    """A data set by its name in DATA_SETS."""
    return loaded(*files_of(data, folder))


def loaded(file: Path, mapping: Path) -> Loaded:
    """Any file of measurements with its mapping.

    Raises:
        InputError: one of them cannot be read, or runs of one workload are in two groups.
    """
    measurements = load_measurements(file, load_measurement_mapping(mapping))
    table = table_of(measurements)
    for rule in measurements.mapping.groups:
        counts = measurements.frame.groupby("workload")[rule.name].nunique()
        if counts.max() > 1:
            raise InputError(f"group {rule.name!r} must be the same in all runs of a workload, got "
                             f"{counts.max()} of {counts.idxmax()!r} ({file})")
    first = measurements.frame.groupby("workload").first()
    groups = {rule.name: first.loc[list(table.workloads), rule.name].to_numpy()
              for rule in measurements.mapping.groups}
    return Loaded(measurements, table, groups)


@dataclass(frozen=True)
class Split:
    """One division of a data set.

    Attributes:
        pool: what learners are fitted to.
        new: workloads to predict, as rows of the table.
        support (C,): under which configurations they may be measured.
        target (C,): under which configurations they are predicted.
    """

    pool: Pool
    new: IntArray
    support: np.ndarray
    target: np.ndarray


def check_split(data: Loaded, kind: str, provider: str) -> None:
    """Raises InputError: there is no such split, or the data have no such group or category, whatever the seed."""
    if kind not in SPLITS:
        raise InputError(f"split must be one of {', '.join(SPLITS)}, got {kind!r}; {nearest(kind, SPLITS)}")
    if kind == "algorithm" and kind not in data.groups:
        raise InputError("mapping must have the group 'algorithm' for the split 'algorithm', got "
                         f"{', '.join(data.groups) or 'no group'}; leave this split out, or name the group")
    if kind == "provider" and provider not in data.table.configurations:
        names = list(map(str, data.table.configurations))
        raise InputError(f"configuration must have the column {provider!r} for the split 'provider', got "
                         f"{', '.join(names)}; leave this split out, or name another column")


def split(data: Loaded, kind: str, seed: int, provider: str) -> Split:
    """The pool, what is measured of a new workload, and what is predicted of it.

    Raises:
        InputError: see check_split; or the split leaves a side empty.
    """
    check_split(data, kind, provider)
    rng = np.random.default_rng(seed)
    everything = data.table.pool
    configurations = len(everything.x)
    every = np.ones(configurations, dtype=bool)
    known, support, target = every, every, every
    if kind == "algorithm":
        names = rng.permutation(np.unique(data.groups["algorithm"]))
        rows = np.flatnonzero(np.isin(data.groups["algorithm"], names[: len(names) // 2]))
    else:
        rows = np.sort(rng.permutation(everything.workloads)[: everything.workloads // 2])
    new = np.setdiff1d(np.arange(everything.workloads), rows)
    if kind == "provider":
        values = data.table.configurations[provider].to_numpy()
        held_out = rng.permutation(np.unique(values))[0]
        support = target = values == held_out
        known = ~support
    elif kind == "configuration":
        known = np.isin(np.arange(configurations), rng.permutation(configurations)[: configurations // 2])
        support, target = known, ~known
    pool = everything.part(rows)
    pool = replace(pool, y=np.where(known, pool.y, np.nan), runs=np.where(known, pool.runs, 0),
                   noise=_noise_of(data, rows, known), metrics=np.where(known[:, None], pool.metrics, np.nan))
    is_measured = ~np.isnan(everything.y[new])
    usable = ((is_measured & support).sum(axis=1) >= 3) & ((is_measured & target).sum(axis=1) >= 4)
    pool = pool.part(np.flatnonzero((~np.isnan(pool.y)).any(axis=1)))
    if pool.workloads < 2 or not usable.any():
        raise InputError(f"split {kind!r} must leave workloads on both sides, got {pool.workloads} and "
                         f"{int(usable.sum())}")
    return Split(pool, new[usable], support, target)


def _noise_of(data: Loaded, rows: IntArray, known: np.ndarray) -> float:
    """Of the runs of these workloads under these configurations alone; NaN where none was repeated."""
    frame, names = data.measurements.frame, list(data.table.configurations)
    at = frame[names].groupby(names, sort=True).ngroup().to_numpy()  # as in encoding.table_of
    of_workloads = frame["workload"].isin([data.table.workloads[row] for row in rows]).to_numpy() & known[at]
    targets = np.log(frame.loc[of_workloads, data.measurements.target])
    cells = targets.groupby([frame.loc[of_workloads, "workload"], at[of_workloads]])
    degrees = int((cells.size() - 1).sum())
    return float(((cells.size() - 1) * cells.var().fillna(0.0)).sum() / degrees) if degrees else float("nan")
