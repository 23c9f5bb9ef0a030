"""The pipeline benchmark: speed and memory of every stage, beside what others need for the same, in one command.

    python -m benchmarks pipeline [--quick] [--only NAME ...] [--output FILE]

Each measurement (benchmarks/pipeline/measurements/) runs in a process of its own and is written to the result file
as soon as it is done; one that fails is written as failed and the others go on. A measurement that is not
repeated (--only) keeps its earlier entry: each carries its date, sizes, code and the machine's load.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.isolation import MEASUREMENTS, ROOT, run_isolated
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from benchmarks.pipeline.sizes import QUICK, Sizes
from feature_store.digests import content_digest
from feature_store.errors import InputError
from feature_store.recorded import DEFAULT_TELEMETRY
from pipelines.request import code_version

FORMAT = "assay-benchmark/1"
OUTPUT = RESULTS / "pipeline.json"
QUICK_RESULTS = ROOT / "build" / "pipeline-quick.json"


def run(options: argparse.Namespace) -> int:
    """Exit code 0 if every measurement was made, 1 if one failed."""
    if options.quick and options.output == OUTPUT:
        options.output = QUICK_RESULTS
    if not options.telemetry.is_file():
        raise InputError(f"telemetry: expected an existing file, got {options.telemetry}; see `assay record`")
    sizes, results = _sizes(options), _begin(options.output)
    names = [name for name in MEASUREMENTS if name in (options.only or MEASUREMENTS)]
    work, began = Path(tempfile.mkdtemp(prefix="assay-benchmark-")), time.perf_counter()
    try:
        for name in names:
            print(f"{time.strftime('%H:%M:%S')}  {name} ...", file=sys.stderr, flush=True)
            results["measurements"][name] = measured = _measure(name, sizes, options, work)
            write_results(options.output, results)
            print(_summary(name, measured), flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{time.perf_counter() - began:.0f} s in all", file=sys.stderr)
    return int(any(results["measurements"][name]["status"] != "done" for name in names))


def _begin(output: Path) -> dict[str, Any]:
    """The result file as it stands, without what another machine or other packages have measured."""
    before, machine = read_results(output) or {"format": FORMAT}, describe_machine()
    if before.get("format") != FORMAT:
        raise InputError(f"--output: expected a file of format {FORMAT}, got {before.get('format')} ({output}); "
                         "name another file")
    kept = before.get("measurements", {})
    if kept and {key: value for key, value in before["machine"].items() if key != "date"} != machine:
        print(f"{output} is of another machine or of other packages: it begins anew", file=sys.stderr)
        kept = {}
    return {"format": FORMAT, "machine": {**machine, "date": now_utc()}, "measurements": kept}


def _measure(name: str, sizes: Sizes, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    used_sizes = {key: value for key, value in asdict(sizes).items() if key.startswith(name.removesuffix("s"))}
    code = code_version()
    about = {"date": now_utc(), "quick": bool(options.quick), "code_version": code,
             "data_version": content_digest(options.telemetry), "load_average_before": load_average(),
             "sizes": used_sizes}
    began = time.perf_counter()
    outcome = run_isolated(name, sizes, work, options.telemetry.resolve())
    seconds = round(time.perf_counter() - began, 1)
    return {**about, "seconds": seconds, "code_changed_meanwhile": code_version() != code, **outcome}


def _summary(name: str, measured: dict[str, Any]) -> str:
    """What a measurement found, one line a quantity."""
    if measured["status"] != "done":
        return f"  {name} failed: {measured['error']}"
    lines = []
    for one in measured["quantities"].values():
        goal = f"  goal {one['goal']['comparison']} {one['goal']['limit']:g}: {'met' if one['met'] else 'NOT met'}" \
            if one["goal"] else ""
        lines.append(f"  {one['label']}: {one['median']:.4g} {one['unit']}{goal}")
    return "\n".join([*lines, f"  ({measured['seconds']:.0f} s)"])


def _sizes(options: argparse.Namespace) -> Sizes:
    given = {field.name: getattr(options, field.name) for field in fields(Sizes)}
    given = {name: tuple(value) if isinstance(value, list) else value
             for name, value in given.items() if value is not None}
    return replace(QUICK if options.quick else Sizes(), **given)


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try it out (build/pipeline-quick.json)")
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), metavar="NAME",
                        help=f"only these measurements: {', '.join(MEASUREMENTS)}")
    parser.add_argument("--telemetry", type=Path, default=DEFAULT_TELEMETRY, help="default: data/base/samples.parquet")
    for field in fields(Sizes):
        several = "+" if isinstance(field.default, tuple) else None
        default = json.dumps(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, nargs=several, metavar="N",
                            help=f"default: {default}; quick: {json.dumps(getattr(QUICK, field.name))}")
