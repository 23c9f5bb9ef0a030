"""The learning benchmark: how good verified learners are beside unverified ones, over several seeds.

    python -m benchmarks.performance --seeds 0 1 2 3 4 [--jobs 2] [--methods ...] [--output FILE]

Runs the pipeline's own steps on the recorded telemetry, without kfp and MLflow, and collects the metrics of
each exported bundle's evidence. Resumable: an entry (method, seed, workload) of the result file that was made
from the same data, settings and learning code is not made again.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.isolation import end_with_parent, stop_as_by_keyboard
from benchmarks.learning_job import (
    METHODS,
    Job,
    Prepared,
    learning_code_version,
    make_tasks,
    prepare,
    run_job,
    run_pretraining,
)
from benchmarks.machine import describe_machine, load_average, now_utc
from benchmarks.result_file import PERFORMANCE_RESULTS, read_results, write_results
from feature_store.digests import content_digest
from pipelines.request import DEFAULT_TELEMETRY

FORMAT = "assay-performance/1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if every entry was made, 1 if one failed, 2 on bad usage, 130 when stopped."""
    options = _parser().parse_args(arguments)
    if not options.telemetry.is_file():
        print(f"telemetry must be an existing file, got {options.telemetry}; see `assay record`", file=sys.stderr)
        return 2
    stop_as_by_keyboard()
    # two learners train at once: libraries must not each take all cores; the workers inherit it
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tasks = make_tasks(options.methods, {"epochs": options.epochs, "iterations": options.iterations,
                                         "loop_verify_seconds": options.loop_verify_seconds,
                                         "verify_seconds": options.verify_seconds})
    results = _begin(options, tasks)
    wanted = [Job(method, seed, workload) for method in options.methods for seed in options.seeds
              for workload in tasks[method].workloads]
    missing = [job for job in wanted if not any(_is(entry, job) for entry in results["entries"])]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} entries are there already", file=sys.stderr)
    work = Path(tempfile.mkdtemp(prefix="assay-performance-"))
    try:
        failed = _run(missing, Prepared(work, str(options.telemetry.resolve()), tasks), options, results)
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"wrote {options.output}", file=sys.stderr)
    if learning_code_version() != results["learning_code_version"]:
        print("the learning code was changed meanwhile: the entries are of mixed code, run it again", file=sys.stderr)
        failed += 1
    return int(failed > 0)


def _begin(options: argparse.Namespace, tasks: Any) -> dict[str, Any]:
    """The result file without entries that other data, settings or code have made."""
    version, data = learning_code_version(), content_digest(options.telemetry)
    before = read_results(options.output) or {}
    settings = {**before.get("settings", {}), **{method: task.settings for method, task in tasks.items()}}
    same = before.get("data_version") == data and before.get("learning_code_version") == version
    entries = [entry for entry in before.get("entries", [])
               if same and settings[entry["method"]] == before["settings"][entry["method"]]]
    if dropped := len(before.get("entries", [])) - len(entries):
        print(f"{dropped} entries are of other data, settings or code and are dropped", file=sys.stderr)
    return {"format": FORMAT, "machine": {**describe_machine(), "date": now_utc()}, "data_version": data,
            "learning_code_version": version, "jobs": options.jobs, "load_average_before": load_average(),
            "settings": settings, "entries": entries}


def _run(jobs: Sequence[Job], prepared: Prepared, options: argparse.Namespace, results: dict[str, Any]) -> int:
    """Makes the entries in `options.jobs` processes, the longest first; returns how many failed."""
    failed, began = 0, time.perf_counter()
    with _pool(options.jobs) as pool:
        seeds = sorted({job.seed for job in jobs})
        for prepared_seed in as_completed([pool.submit(prepare, prepared, seed) for seed in seeds]):
            prepared_seed.result()
        # pretraining knows nothing of the method: one for each seed and number of epochs
        firsts = {(prepared.tasks[job.method].pretrain_epochs, job.seed): job.method for job in jobs}
        for pretrained in as_completed([pool.submit(run_pretraining, prepared, method, seed)
                                        for (_, seed), method in firsts.items()]):
            pretrained.result()
        ordered = sorted(jobs, key=lambda job: METHODS[job.method].expected_cost, reverse=True)
        pending: dict[Future[dict[str, Any]], Job] = {pool.submit(run_job, prepared, job): job for job in ordered}
        for number, future in enumerate(as_completed(pending), start=1):
            entry = future.result()
            if entry["status"] == "done":
                results["entries"].append(entry)
                results["entries"].sort(key=_order)
                write_results(options.output, results)
            else:
                failed += 1
            print(f"{time.perf_counter() - began:6.0f} s  {number} of {len(jobs)}  {_line(entry)}", file=sys.stderr,
                  flush=True)
    return failed


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are gone when the block ends, however it ends."""
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _is(entry: dict[str, Any], job: Job) -> bool:
    return (entry["method"], entry["seed"], entry["workload"]) == (job.method, job.seed, job.workload)


def _order(entry: dict[str, Any]) -> tuple[int, int, str]:
    return list(METHODS).index(entry["method"]), entry["seed"], entry["workload"]


def _line(entry: dict[str, Any]) -> str:
    what = f"{entry['method']}, seed {entry['seed']}, {entry['workload']}"
    if entry["status"] != "done":
        return f"{what}: failed: {entry['error']}"
    metrics = entry["metrics"]
    return (f"{what}: {entry['verdict']}, test accuracy {metrics['test_accuracy']:.3f} "
            f"(twin {metrics['twin_test_accuracy']:.3f}), {entry['seconds']:.0f} s")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), metavar="METHOD",
                        help=f"default: {', '.join(METHODS)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side; default: 2")
    parser.add_argument("--output", type=Path, default=PERFORMANCE_RESULTS,
                        help="default: benchmarks/results/performance.json")
    parser.add_argument("--telemetry", type=Path, default=DEFAULT_TELEMETRY, help="default: data/base/samples.parquet")
    parser.add_argument("--epochs", type=int, help="planned epochs; default: the task's")
    parser.add_argument("--iterations", type=int, default=5, help="limit of the train-verify loop; default: 5")
    parser.add_argument("--loop-verify-seconds", type=float, default=5.0, help="default: 5")
    parser.add_argument("--verify-seconds", type=float, default=20.0, help="budget of the final proof; default: 20")
    return parser


if __name__ == "__main__":
    sys.exit(main())
