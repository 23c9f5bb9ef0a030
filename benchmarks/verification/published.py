"""The verification benchmark: published instances, each decided through the interface behind `assay verify`.

    python -m benchmarks verification [--data FOLDER] [--only acasxu lindex] [--threads 1] [--timeout 120]

    acasxu   186 properties of 45 networks, VNN-COMP 2021: verdicts against those that all its tools agree on
    lindex   a learned index: 13 properties, three of them of thousands of boxes, on both networks

Seconds are those of a decision, reading the files included, start-up and imports left out; a warm-up instance comes
first. Run on an idle machine. Results: benchmarks/results/verification.json, each part replaced when measured again.
"""

import argparse
import csv
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from feature_store.errors import InputError

OUTPUT = RESULTS / "verification.json"
FORMAT = "assay-verification/1"
PARTS = ("acasxu", "lindex")
LINDEX_NETWORKS = ("lindex.onnx", "lindex_deep.onnx")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    add_data_folder(parser, "--data")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--threads", type=int, default=1, help="threads of a decision; default: %(default)s")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds of an instance; default: %(default)s")
    parser.add_argument("--every", type=int, default=1, help="measure every n-th instance alone, to try it out")


def run(options: argparse.Namespace) -> int:
    """Exit code 0 if every instance was decided and none wrongly, 1 if not."""
    folder = required(options.data, "--data") / "vnnlib"
    if not folder.is_dir():
        raise InputError(f"--data: expected a folder that holds vnnlib, got {options.data}")
    import torch

    torch.set_num_threads(options.threads)
    results = read_results(options.output) or {"format": FORMAT, "parts": {}}
    good = True
    for name in options.only:
        instances = list(_acasxu(folder / name) if name == "acasxu" else _lindex(folder / name))[::options.every]
        part = _measure(name, instances, options.timeout, options.threads)
        results["machine"] = describe_machine()
        results["parts"][name] = part
        good &= all(entry["verdict"] in ("PROVED", "REFUTED") and entry["agrees"] for entry in part["instances"])
        write_results(options.output, results)
    return 0 if good else 1


Instance = tuple[Path, Path, str | None]  # network, property, the verdict that is known


def _acasxu(folder: Path) -> Iterator[Instance]:
    known = {"holds": "PROVED", "violated": "REFUTED"}
    with (folder / "verdicts.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield folder / row["network"], folder / row["property"], known[row["verdict"]]


def _lindex(folder: Path) -> Iterator[Instance]:
    for network in LINDEX_NETWORKS:
        for claim in sorted(folder.glob("*.vnnlib*")):
            yield folder / network, claim, None


def _measure(name: str, instances: Sequence[Instance], timeout: float, threads: int) -> dict[str, Any]:
    from models.verification.decide import decide

    started, load = now_utc(), load_average()
    decide(*instances[0][:2], timeout)  # what is done once in a process
    entries = []
    for number, (network, claim, known) in enumerate(instances, 1):
        began = time.perf_counter()
        decision = decide(network, claim, timeout)
        seconds = time.perf_counter() - began
        entries.append({"network": network.name, "property": claim.name, "verdict": decision.verdict, "known": known,
                        "agrees": known is None or decision.verdict == known, "seconds": round(seconds, 4),
                        "boxes": sum(part.boxes for part in decision.parts)})
        mark = "" if entries[-1]["agrees"] else f"  WRONG or undecided, known: {known}"
        print(f"{name} {number}/{len(instances)}  {network.name} {claim.name}: {decision.verdict} "
              f"{seconds:.2f} s{mark}", file=sys.stderr)
    return {"started": started, "load_average_before": load, "threads": threads, "timeout_s": timeout,
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "instances": entries}
