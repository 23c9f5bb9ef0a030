"""Telemetry larger than memory: seconds and peak memory of ingest, validate and featurize against the number of rows.

    python -m benchmarks larger-than-memory [--rows 1000000 ... ] [--scratch FOLDER]

Curves, each point a run of the three steps' own functions, each in a process of its own:

    workloads   a data set of more and more workloads, a million rows each
    largest     a data set of one workload, which has more and more rows
    one file    the first curve's rows in one Parquet file: the peer, for that is how telemetry usually comes
    apart       the first curve's data set, of which a shard of one workload reads its own part (pipelines/train.py)

Rows are the recorded campaign's, drawn with replacement, their measurements scaled by up to a tenth and rounded to four
digits, a minute apart. Resumable: points that are there for the same code are kept.
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS
from benchmarks.pipeline.measurements.task_file import write_copies
from feature_store.recorded import DEFAULT_TELEMETRY
from feature_store.schema import METRICS, TARGETS

OUTPUT = RESULTS / "larger_than_memory.json"
FORMAT = "assay-larger-than-memory/1"
WORKLOADS, LARGEST, ONE_FILE, APART = "workloads", "largest", "one file", "apart"
ROWS = {WORKLOADS: (1_000_000, 3_000_000, 10_000_000, 100_000_000), LARGEST: (3_000_000, 10_000_000),
        ONE_FILE: (3_000_000, 10_000_000), APART: (10_000_000,)}  # the first point of all is the same million
PER_WORKLOAD = 1_000_000
PER_FILE = 250_000
STEPS = ("ingest", "validate", "featurize")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--rows", nargs="+", type=int, metavar="ROWS", help="only the points with so many rows")
    parser.add_argument("--scratch", type=Path, help="folder with 200 bytes a row of free space; default: /tmp")


def run(options: argparse.Namespace) -> None:
    """Makes the points that are missing, smallest first."""
    code = code_digest("benchmarks.pipeline.larger_than_memory", "")
    results = Entries(options.output, FORMAT, _key, made_by(code))
    results.content |= {"machine": describe_machine(), "rows_a_workload": PER_WORKLOAD, "rows_a_file": PER_FILE}
    points = sorted((rows, curve) for curve in ROWS for rows in ROWS[curve])
    for rows, curve in points:
        if results.has((curve, rows)) or (options.rows and rows not in options.rows):
            continue
        with TemporaryDirectory(dir=options.scratch, prefix="assay-rows-") as folder:
            results.add({"curve": curve, "rows": rows, **_point(curve, rows, Path(folder)), "code": code,
                         "at": now_utc(), "load": load_average()})


def _key(entry: Mapping[str, Any]) -> tuple[str, int]:
    return entry["curve"], entry["rows"]


def _point(curve: str, rows: int, folder: Path) -> dict[str, Any]:
    """Writes the telemetry and runs the steps on it; what a step no longer needs is removed at once."""
    workloads = 1 if curve == LARGEST else rows // PER_WORKLOAD
    task, telemetry = folder / "task.yaml", folder / ("telemetry.parquet" if curve == ONE_FILE else "telemetry")
    names = list(write_copies(task, workloads, 1, [8]))
    _in_its_own_process(_write, telemetry, names, rows // workloads)
    shard = names[-1:] if curve == APART else names
    size_mb = sum(path.stat().st_size for path in [telemetry, *telemetry.rglob("*")] if path.is_file()) / 1e6
    steps: dict[str, Any] = {}
    for step, before in zip(STEPS, (telemetry, folder / "ingest", folder / "validate"), strict=True):
        print(f"{time.strftime('%H:%M:%S')}  {curve}, {rows:,} rows: {step}", file=sys.stderr, flush=True)
        steps[step] = _in_its_own_process(_step, step, task, before, folder, shard)
        shutil.rmtree(before) if before.is_dir() else before.unlink()
    return {"workloads": workloads, "telemetry_mb": size_mb, "steps": steps}


def _in_its_own_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """A new process, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def _step(step: str, task: Path, before: Path, folder: Path, names: list[str]) -> dict[str, float]:
    """Seconds of a step from its call on, and peak memory (GB) of its process."""
    from components.featurize import run_featurize
    from components.ingest import run_ingest
    from components.progress import PROGRESS_VARIABLE
    from components.validate import run_validate

    os.environ[PROGRESS_VARIABLE] = os.devnull

    text, output, began = task.read_text(), folder / step, time.perf_counter()
    if step == "ingest":
        run_ingest(text, str(before), "", output, names)
    elif step == "validate":
        run_validate(text, names, before, output, folder / "docs")
    else:
        status = run_featurize(text, names, 0, before, output)
        assert not any(status.values()), status
    return {"seconds": time.perf_counter() - began,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}


def _write(telemetry: Path, names: list[str], rows: int) -> None:
    """A file for all, or a folder a workload with files of PER_FILE rows; memory follows one file's rows."""
    from pyarrow import Table
    from pyarrow.parquet import ParquetWriter

    recorded = pd.read_parquet(DEFAULT_TELEMETRY)
    one: ParquetWriter | None = None
    for number, name in enumerate(names):
        source = recorded[recorded["workload"] == name.rstrip("0123456789")].reset_index(drop=True)
        for first in range(0, rows, PER_FILE):
            part = _drawn(source, first, min(PER_FILE, rows - first), number).assign(workload=name)
            if telemetry.suffix:
                one = one or ParquetWriter(telemetry, Table.from_pandas(part).schema, compression="zstd")
                one.write_table(Table.from_pandas(part))
                continue
            path = telemetry / f"workload={name}" / f"part-{first // PER_FILE:05}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            part.drop(columns="workload").to_parquet(path, compression="zstd", index=False)
    if one is not None:
        one.close()


def _drawn(source: pd.DataFrame, first: int, rows: int, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng((seed, first))
    table = source.iloc[generator.integers(0, len(source), rows)].reset_index(drop=True)
    for name in (*METRICS, *TARGETS):
        if name in table:
            table[name] = (table[name] * generator.uniform(0.9, 1.0, rows)).round(4)
    start = pd.Timestamp("2000-01-01", tz="UTC") + pd.to_timedelta(60 * np.arange(first, first + rows), unit="s")
    return table.assign(window_start=start.as_unit("ms"), window_s=60.0, environment="base", combination="drawn")
