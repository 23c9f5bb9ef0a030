"""The learning benchmark: how good verified learners are beside unverified ones, over several seeds.

    python -m benchmarks performance --seeds 0 1 2 3 4 [--data recorded linnos] [--jobs 2] [--methods ...]

Runs the pipeline's own steps on each data set (data_sets.py), without kfp and MLflow, and collects the metrics of
each exported bundle's evidence. Resumable: an entry (data set, method, seed, workload) of the result file that was
made from the same data, settings and learning code is not made again. What is not there is left out with a line that
says so: a public data set, or a peer that is not installed.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness.data_folder import add_data_folder
from benchmarks.harness.jobs import add_jobs, processes
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from benchmarks.learning import data_sets, lipschitz_monotone
from benchmarks.learning.data_sets import DATA_SETS, DEFAULT, open_data_sets
from benchmarks.learning.job import Job, Prepared, find_directions, prepare, run_job, run_pretraining
from benchmarks.learning.methods import METHODS, learning_code_version, make_tasks
from feature_store.recorded import DEFAULT_TELEMETRY

OUTPUT = RESULTS / "performance.json"
FORMAT = "assay-performance/2"


def run(options: argparse.Namespace) -> int:
    """Exit code 0 if every entry was made, 1 if one failed, 2 where the recorded telemetry is missing."""
    if not (names := _available(options)):
        return 2
    work = Path(tempfile.mkdtemp(prefix="assay-performance-"))
    try:
        prepared = _prepare(names, options, work)
        results = _begin(options, prepared)
        missing = _missing(prepared, options.seeds, options.workloads, results)
        failed = _run(missing, prepared, options, results)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if learning_code_version() != results["learning_code_version"]:
        print("the learning code was changed meanwhile: the entries are of mixed code, run it again", file=sys.stderr)
        failed += 1
    return int(failed > 0)


def _available(options: argparse.Namespace) -> list[str]:
    """The data sets asked for that are there; for each other one a line. Takes a peer that is not there off the list.

    Empty where the recorded telemetry was asked for and is not there: it is part of the project.
    """
    names = []
    for name in dict.fromkeys(options.data):
        if line := data_sets.missing(name, options.telemetry, options.data_folder):
            print(line, file=sys.stderr)
            if name == data_sets.RECORDED:
                return []
        else:
            names.append(name)
    line = lipschitz_monotone.missing()
    if line and any(METHODS[method].peer for method in options.methods):
        print(line, file=sys.stderr)
        options.methods = [method for method in options.methods if not METHODS[method].peer]
    return names


def _prepare(names: Sequence[str], options: argparse.Namespace, work: Path) -> Prepared:
    data = open_data_sets(names, options.telemetry, options.data_folder, work)
    given = {"epochs": options.epochs, "iterations": options.iterations,
             "loop_verify_seconds": options.loop_verify_seconds, "verify_seconds": options.verify_seconds}
    return Prepared(work, data, {name: make_tasks(one.task, options.methods, given) for name, one in data.items()})


def _missing(prepared: Prepared, seeds: Sequence[int], workloads: Sequence[str],
             results: dict[str, Any]) -> list[Job]:
    """The entries that are asked for and were not made by the code as it is; workloads: empty for all."""
    wanted = [Job(data, method, seed, workload) for data, tasks in prepared.tasks.items()
              for method, task in tasks.items() for seed in seeds for workload in task.workloads
              if not workloads or workload in workloads]
    version = results["learning_code_version"]
    missing = [job for job in wanted if not any(
        _is(entry, job) and entry.get("learning_code_version", version) == version for entry in results["entries"])]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} entries are there already", file=sys.stderr)
    return missing


def _begin(options: argparse.Namespace, prepared: Prepared) -> dict[str, Any]:
    """The result file without entries that other data, settings or code have made.

    What it holds of data sets and methods that are not asked for now stays, if the code is the same, or if other
    code's entries are to be kept: each says which code has made it.
    """
    version = learning_code_version()
    before = read_results(options.output) or {}
    same = before.get("format") == FORMAT and (options.keep_other_code
                                               or before.get("learning_code_version") == version)
    known = before["data"] if same else {}
    data = dict(known)
    for name, tasks in prepared.tasks.items():
        versions, settings = prepared.data[name].versions(), {method: task.settings for method, task in tasks.items()}
        earlier = known.get(name, {})
        if all(earlier.get(key) == value for key, value in versions.items()):
            data[name] = {**earlier, "settings": {**earlier["settings"], **settings}}
        else:
            data[name] = {**versions, "settings": settings, "directions": {}}

    def still_valid(entry: dict[str, Any]) -> bool:
        old, new = (one.get(entry["data"], {}) for one in (known, data))
        return all(old.get(key) == new.get(key) for key in ("data_version", "task_version")) and \
            old["settings"][entry["method"]] == new["settings"][entry["method"]]

    entries = [{"learning_code_version": before["learning_code_version"], **entry}
               for entry in before.get("entries", []) if same and still_valid(entry)]
    if dropped := len(before.get("entries", [])) - len(entries):
        print(f"{dropped} entries are of other data, settings or code and are dropped", file=sys.stderr)
    return {"format": FORMAT, "machine": {**describe_machine(), "date": now_utc()}, "learning_code_version": version,
            "jobs": options.jobs, "load_average_before": load_average(), "data": data, "entries": entries}


def _run(jobs: Sequence[Job], prepared: Prepared, options: argparse.Namespace, results: dict[str, Any]) -> int:
    """Makes the entries in `options.jobs` processes, the longest first; returns how many failed."""
    failed, began = 0, time.perf_counter()
    with processes(options.jobs) as pool:
        for made in as_completed([pool.submit(prepare, prepared, data, seed) for data, seed in
                                  sorted({(job.data, job.seed) for job in jobs})]):
            made.result()
        # pretraining knows nothing of the method: one for each data set, seed and number of epochs
        firsts = {(job.data, prepared.tasks[job.data][job.method].pretrain_epochs, job.seed): job.method
                  for job in jobs if not METHODS[job.method].peer}
        for pretrained in as_completed([pool.submit(run_pretraining, prepared, data, method, seed)
                                        for (data, _, seed), method in firsts.items()]):
            pretrained.result()
        for (data, workload), directions in _directions(pool, jobs, prepared, results).items():
            results["data"][data]["directions"][workload] = directions
        ordered = sorted(jobs, key=lambda job: METHODS[job.method].expected_cost *
                         prepared.data[job.data].expected_cost, reverse=True)
        pending: dict[Future[dict[str, Any]], Job] = {pool.submit(run_job, prepared, job): job for job in ordered}
        for number, future in enumerate(as_completed(pending), start=1):
            entry = future.result()
            if entry["status"] == "done":
                results["entries"] = [old for old in results["entries"] if not _is(old, pending[future])]
                results["entries"].append({"learning_code_version": results["learning_code_version"], **entry})
                results["entries"].sort(key=_order)
                write_results(options.output, results)
            else:
                failed += 1
            print(f"{time.perf_counter() - began:6.0f} s  {number} of {len(jobs)}  {_line(entry)}", file=sys.stderr,
                  flush=True)
    return failed


def _directions(pool: ProcessPoolExecutor, jobs: Sequence[Job], prepared: Prepared,
                results: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the data say about the specifications of the jobs' workloads, on their first seed, where not known yet."""
    firsts: dict[tuple[str, str], int] = {}
    for job in jobs:
        if job.workload not in results["data"][job.data]["directions"]:
            key = job.data, job.workload
            firsts[key] = min(job.seed, firsts.get(key, job.seed))
    pending = {key: pool.submit(find_directions, prepared, key[0], seed, key[1]) for key, seed in firsts.items()}
    return {key: directions for key, future in pending.items() if (directions := future.result())}


def _is(entry: dict[str, Any], job: Job) -> bool:
    return all(entry[key] == value for key, value in asdict(job).items())


def _order(entry: dict[str, Any]) -> tuple[int, int, int, str]:
    return (list(DATA_SETS).index(entry["data"]), list(METHODS).index(entry["method"]), entry["seed"],
            entry["workload"])


def _line(entry: dict[str, Any]) -> str:
    what = f"{entry['data']}, {entry['method']}, seed {entry['seed']}, {entry['workload']}"
    if entry["status"] != "done":
        return f"{what}: failed: {entry['error']}"
    metrics = entry["metrics"]
    proved = f", PROVED after {metrics['proved_seconds']:.0f} s" if "proved_seconds" in metrics else ""
    return (f"{what}: {entry['verdict']}, test accuracy {metrics['test_accuracy']:.3f}, MSE "
            f"{metrics['test_mse'] / metrics['baseline_mse']:.2f} of boosting's, {entry['seconds']:.0f} s{proved}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--data", nargs="+", choices=list(DATA_SETS), default=list(DEFAULT), metavar="DATA",
                        help=f"of {', '.join(DATA_SETS)}; default: {', '.join(DEFAULT)}")
    add_data_folder(parser)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), metavar="METHOD",
                        help=f"default: {', '.join(METHODS)}")
    parser.add_argument("--workloads", nargs="+", default=[], metavar="WORKLOAD", help="default: all")
    parser.add_argument("--keep-other-code", action="store_true",
                        help="keep entries that other code has made, and replace only those that are asked for")
    add_jobs(parser)
    parser.add_argument("--telemetry", type=Path, default=DEFAULT_TELEMETRY, help="default: data/base/samples.parquet")
    parser.add_argument("--epochs", type=int, help="planned epochs; default: the task's")
    parser.add_argument("--iterations", type=int, default=5, help="limit of the train-verify loop; default: 5")
    parser.add_argument("--loop-verify-seconds", type=float, default=5.0, help="default: 5")
    parser.add_argument("--verify-seconds", type=float, default=20.0, help="budget of the final proof; default: 20")
