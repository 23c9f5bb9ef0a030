"""Few-shot prediction of run times: our learners and every baseline on the same splits of public data.

    python -m benchmarks adaptation-accuracy [--data cloudbandit scout] [--splits workload ...] [--seeds 0 1 ...]
    python -m benchmarks adaptation-accuracy --file runs.csv --mapping mapping.yaml --provider COLUMN

For each split (adaptation/splits.py) a learner is fitted to the pool, gets one, two and three measured runs of every
new workload, and predicts its other configurations; what counts is the mean absolute percentage error of a workload's
configurations, averaged over workloads. Splits, supports and choices of configurations are the same for all learners.
Failed runs are left out and counted. Resumable: an entry (data, split, seed, method, bases) that was made by the same
code from the same input is not made again. Where a split or a learner does not take the data, its entry says why.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.adaptation.methods import DEFAULT, DRAWS, METHODS, Method
from benchmarks.adaptation.splits import DATA_SETS, SPLITS, Loaded, Split, check_split, files_of, loaded, split
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder
from benchmarks.harness.entries import Entries
from benchmarks.harness.jobs import add_jobs, in_processes
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS
from feature_store.errors import InputError
from models.adaptation.design import Design
from models.adaptation.learner import NONE, Fitted, FloatArray, IntArray, supports
from models.adaptation.pool.conformal import Conformal, calibrate
from models.adaptation.pool.validation import SHOTS, absolute_percentage_errors, mean_over_cells

OUTPUT = RESULTS / "adaptation.json"
FORMAT = "assay-adaptation/1"
SEEDS = tuple(range(10))
DESIGNED = {"chosen", "planned", "sequential"}  # bases that Design chooses
Job = tuple["Source", str, int, list[tuple[str, str]]]  # source, split, seed, (method, bases) of each entry
Source = tuple[str, Path, Path, str]  # name, measurements, mapping, category that the provider split holds out


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--data", nargs="+", default=list(DATA_SETS), choices=DATA_SETS, metavar="DATA")
    add_data_folder(parser)
    parser.add_argument("--file", type=Path, help="another file of measurements, instead of --data")
    parser.add_argument("--mapping", type=Path, help="its mapping")
    parser.add_argument("--provider", default="provider", help="category that the provider split holds out")
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=SPLITS, metavar="SPLIT")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    add_jobs(parser)
    parser.add_argument("--keep-other-code", action="store_true",
                        help="keep entries of other code or input; every entry names its own")


def run(options: argparse.Namespace) -> None:
    """Makes the entries that are missing."""
    code = code_digest("benchmarks.adaptation.accuracy", "")
    sources = _sources(options)
    measured = {source[0]: loaded(*source[1:3]) for source in sources}
    inputs = {source[0]: _input_digest(source) for source in sources}
    results = Entries(options.output, FORMAT, _key, lambda _, entry: options.keep_other_code or (
        entry["code"] == code and entry["input"] == inputs.get(entry["data"], entry["input"])))
    for source in sources:
        for kind in options.splits:
            check_split(measured[source[0]], kind, source[3])
    results.content |= {
        "data": {**results.content.get("data", {}), **{name: _facts(data) for name, data in measured.items()}},
        "machine": describe_machine(), "shots": list(SHOTS), "draws": DRAWS}
    jobs = [(source, kind, seed, wanted) for source in sources for kind in options.splits for seed in options.seeds
            if (wanted := _missing(results, source[0], kind, seed, options.methods))]
    print(f"{len(results)} entries are there already, {sum(len(job[3]) for job in jobs)} to be made", file=sys.stderr)

    def keep(job: Job, made: list[dict[str, Any]]) -> str:
        source, kind, seed, _ = job
        results.add(*({**entry, "code": code, "input": inputs[source[0]]} for entry in made))
        reasons = dict.fromkeys(f"\n         not measured: {entry['error']}" for entry in made if "error" in entry)
        return f"{source[0]}, {kind}, seed {seed}" + "".join(reasons)

    in_processes(_measure, jobs, options.jobs, keep)


def _facts(data: Loaded) -> dict[str, Any]:
    """What the result file says of a data set."""
    return {"workloads": len(data.table.workloads), "configurations": len(data.table.configurations),
            "runs": len(data.measurements.frame), "failed_runs": sum(data.measurements.failed.values()),
            "noise": _plain(float(np.sqrt(data.table.pool.noise))), "flags": list(data.measurements.flags)}


def _missing(results: Entries, data: str, kind: str, seed: int, methods: Sequence[str]) -> list[tuple[str, str]]:
    """(method, bases) of which there is no entry yet."""
    return [(name, bases) for name in methods for bases in METHODS[name].bases
            if (bases != "all" or kind == "workload") and (not METHODS[name].splits or kind in METHODS[name].splits)
            and not results.has((data, kind, seed, name, bases))]


def _key(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[name] for name in ("data", "split", "seed", "method", "bases"))


def _sources(options: argparse.Namespace) -> list[Source]:
    """What to measure on. Raises InputError: options that do not go together, or are out of range."""
    if (options.file is None) != (options.mapping is None):
        raise InputError("--file and --mapping must be given together, got one of them")
    if options.jobs < 1:
        raise InputError(f"--jobs must be at least 1, got {options.jobs}")
    if min(options.seeds) < 0:
        raise InputError(f"--seeds must be at least 0, got {min(options.seeds)}")
    if options.file is not None:
        return [(options.file.stem, options.file, options.mapping, options.provider)]
    return [(name, *files_of(name, options.data_folder), DATA_SETS[name].provider) for name in options.data]


def _input_digest(source: Source) -> str:
    """Of the measurements, the mapping and the category that is held out."""
    _, file, mapping, provider = source
    parts = (json.dumps(provider).encode(), mapping.read_bytes(), file.read_bytes())
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def _measure(source: Source, kind: str, seed: int, wanted: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Entries of one split: every method on the same supports, on one thread."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        return _measured(source, kind, seed, wanted)


def _measured(source: Source, kind: str, seed: int, wanted: list[tuple[str, str]]) -> list[dict[str, Any]]:
    name, file, mapping, provider = source
    data, common = loaded(file, mapping), {"data": name, "split": kind, "seed": seed}
    try:
        parts = split(data, kind, seed, provider)
        wanted_bases = {bases for _, bases in wanted}
        design = Design(parts.pool, METHODS[DEFAULT].make(), seed=seed) if wanted_bases & DESIGNED else None
    except InputError as error:
        return [{**common, "method": method, "bases": bases, "error": str(error)} for method, bases in wanted]
    entries, bases_at = [], {bases: _bases(bases, data, parts, design, seed) for bases in wanted_bases}
    for method_name in dict.fromkeys(method for method, _ in wanted):
        method, own_bases = METHODS[method_name], [bases for name_, bases in wanted if name_ == method_name]
        began = time.perf_counter()
        try:
            fitted = method.make().fit(parts.pool, seed)
        except InputError as error:
            entries += [{**common, "method": method_name, "bases": bases, "error": str(error)} for bases in own_bases]
            continue
        fit_s = time.perf_counter() - began
        for bases in own_bases:
            workloads, ats = bases_at[bases]
            began = time.perf_counter()
            errors = _errors(fitted, method, data, parts, workloads, ats)
            predict_s, inside = time.perf_counter() - began, {}
            if method_name == DEFAULT and bases == "random":
                began = time.perf_counter()
                conformal = calibrate(method.make(), parts.pool, seed=seed)
                inside = _intervals(conformal, fitted, data, parts, workloads, ats)
                inside["calibration_seconds"] = round(time.perf_counter() - began, 3)
            entries.append({
                **inside, **common, "method": method_name, "bases": bases,
                "mape": [_plain(float(np.nanmean(error))) for error in errors], "new_workloads": len(parts.new),
                "pool_workloads": parts.pool.workloads, "fit_seconds": round(fit_s, 4),
                "predict_seconds": round(predict_s, 4), "date": now_utc(), "load": load_average()})
    return entries


def _bases(bases: str, data: Loaded, parts: Split, design: Design | None,
           seed: int) -> tuple[IntArray, list[IntArray]]:
    """Workloads (E,) and what is measured of them (E, k) for each number of runs; NONE where there is nothing left."""
    pool, rng = data.table.pool, np.random.default_rng([seed, 1])
    measured = ~np.isnan(pool.y) & parts.support
    if bases == "random":
        workloads = np.repeat(parts.new, DRAWS)
        draw = np.where(measured[workloads], rng.random((len(workloads), measured.shape[1])), np.inf)
        order = np.argsort(draw, axis=1)
        return workloads, [order[:, :shots] for shots in SHOTS]
    if bases == "all":
        workloads, at = _leave_out(pool.y, parts, rng)
        return workloads, [at]
    assert design is not None
    if bases == "planned":
        plans: dict[bytes, list[IntArray]] = {}
        for workload in parts.new:
            key = measured[workload].tobytes()
            if key not in plans:
                plans[key] = [design.together(shots, np.flatnonzero(measured[workload])) for shots in SHOTS]
        every = [plans[measured[workload].tobytes()] for workload in parts.new]
        return parts.new, [np.stack([_to_length(plan[k], shots) for plan in every]) for k, shots in enumerate(SHOTS)]
    rows = []
    for workload in parts.new:
        candidates = np.flatnonzero(measured[workload])
        if bases == "chosen":
            rows.append(_to_length(design.base(max(SHOTS), candidates), max(SHOTS)))
            continue
        at = np.empty(0, dtype=np.int64)
        for _ in SHOTS:
            following = design.following(supports(pool, np.array([workload]), at[None]), candidates)
            at = np.append(at, following)
        rows.append(at)
    return parts.new, [np.stack(rows)[:, :shots] for shots in SHOTS]


def _to_length(at: IntArray, length: int) -> IntArray:
    return np.pad(at, (0, length - len(at)), constant_values=NONE)


def _leave_out(y: FloatArray, parts: Split, rng: np.random.Generator, folds: int = 10) -> tuple[IntArray, IntArray]:
    """Each new workload `folds` times, with nine tenths of what was measured of it."""
    workloads, rows = [], []
    for workload in parts.new:
        measured = rng.permutation(np.flatnonzero(~np.isnan(y[workload])))
        for part in np.array_split(measured, min(folds, len(measured))):
            at = np.full(y.shape[1], NONE)
            known = np.setdiff1d(measured, part)
            at[: len(known)] = known
            workloads.append(workload)
            rows.append(at)
    return np.array(workloads), np.stack(rows)


def _errors(fitted: Fitted, method: Method, data: Loaded, parts: Split, workloads: IntArray,
            ats: Sequence[IntArray]) -> list[FloatArray]:
    """By number of runs: the error of every new workload."""
    pool, errors_by_shots = data.table.pool, []
    for at in ats:
        support = supports(pool, workloads, at)
        errors = absolute_percentage_errors(pool, workloads, support.at, fitted.predict(support), method.point_loss)
        errors = mean_over_cells(np.where(parts.target, errors, np.nan))
        errors_by_shots.append(mean_over_cells(np.stack([errors[workloads == one] for one in parts.new])))
    return errors_by_shots


def _intervals(conformal: Conformal, fitted: Fitted, data: Loaded, parts: Split, workloads: IntArray,
               ats: Sequence[IntArray]) -> dict[str, Any]:
    """By number of runs: share of new workloads' cells inside of their interval, and median of upper by lower end."""
    pool = data.table.pool
    coverage, width = [], []
    for shots, at in zip(SHOTS, ats, strict=True):
        support = supports(pool, workloads, at)
        lower, upper = conformal.interval(fitted.predict(support), shots)
        measured = np.where(parts.target, np.exp(pool.y[workloads]), np.nan)
        rows, columns = np.nonzero(support.is_run)
        measured[rows, support.at[rows, columns]] = np.nan
        is_target = ~np.isnan(measured)
        inside = mean_over_cells(np.where(is_target, (lower <= measured) & (measured <= upper), np.nan))
        coverage.append(_plain(float(np.nanmean(inside))))
        width.append(_plain(float(np.median((upper / lower)[is_target]))))
    return {"nominal_coverage": conformal.coverage, "coverage": coverage, "width": width}


def _plain(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
