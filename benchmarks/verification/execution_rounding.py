"""What executing a network in floating point can do to its outputs, beside what it does, and what float64 costs.

    python -m benchmarks execution-rounding

Of networks that are monotone by construction in one input, and of He-initialised ones: the checker's bound on how far
the executed output is from the exact one (models/verification/checker/rounding.py) in float32 and float64, the largest
difference seen in onnxruntime at random points, what execution may add to a violation of the order, and the median time
of predicting one row. Ten inputs; all shares are of the output's range over those points.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import torch

from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import number, table
from benchmarks.harness.result_file import RESULTS, write_results
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.onnx_model import INPUT, build_onnx
from models.export.parity import one_row_latency_us
from models.learners.mlp import build_mlp, linear_layers
from models.training.sign_pattern import initialise
from models.verification.checker.chain import read_chain
from models.verification.checker.rounding import Arithmetic, chain_error, execution_error, kept_order
from models.verification.network.fully_connected import ReluNetwork, network_from_torch
from models.verification.network.runtime_session import open_session

OUTPUT = RESULTS / "execution_rounding.json"
FORMAT = "assay-execution-rounding/1"
INPUTS, POINTS, REPEATS = 10, 4000, 5
HIDDEN = ((64, 64), (300, 300), (512, 512, 512))
LEARNERS = ("monotone by construction", "He-initialised")


def make_network(learner: str, hidden: Sequence[int], seed: int) -> ReluNetwork:
    """An untrained network of one of LEARNERS, with random biases."""
    generator = torch.Generator().manual_seed(seed)
    module = build_mlp(INPUTS, hidden, generator)
    layers = linear_layers(module)
    if learner == LEARNERS[0]:
        initialise(layers, [(0, 1)])
    with torch.no_grad():
        for layer in layers:
            layer.bias.uniform_(-0.5, 0.5, generator=generator)
    return network_from_torch(module)


def measure(learner: str, hidden: Sequence[int], seed: int) -> dict[str, Any]:
    """One network; every share is of the range of its exact outputs."""
    network = make_network(learner, hidden, seed)
    names = tuple(f"x{i}" for i in range(INPUTS))
    scaling = FeatureScaling(MinMaxScaling(names, (0.0,) * INPUTS, (1.0,) * INPUTS),
                             MinMaxScaling(("y",), (0.0,), (1.0,)))
    x = np.random.default_rng(seed).random((POINTS, INPUTS)).astype(np.float32)
    exact = network.value(x)
    span = float(np.ptp(exact))
    entry: dict[str, Any] = {"learner": learner, "hidden": list(hidden), "seed": seed}
    for dtype in (np.float32, np.float64):
        content = build_onnx(network, scaling, "y", {}, dtype)
        chain, walls = read_chain(content), (np.zeros(INPUTS), np.ones(INPUTS))
        bound = execution_error(chain.weights, chain.biases, *walls, chain.relus, Arithmetic.of(np.dtype(dtype)))
        session: onnxruntime.InferenceSession = open_session(content)
        seen = np.abs(np.concatenate([session.run(None, {INPUT: row[None]})[0][:, 0] for row in x]) - exact).max()
        times = [one_row_latency_us(content, x[0].astype(float)) for _ in range(REPEATS)]
        order = 0.0 if kept_order(chain.weights, 0, 1)[0] else 2 * float(chain_error(chain, *walls)[0])
        entry[np.dtype(dtype).name] = {
            "bound_share": float(bound[0]) / span, "seen_share": float(seen) / span, "order_share": order / span,
            "one_row_us": {"median": float(np.median(times)), "values": times}, "bytes": len(content)}
    return entry


def rounding_table(results: Mapping[str, Any]) -> str:
    """Medians over the seeds; one row a learner and size."""
    def median(entries: Sequence[Mapping[str, Any]], dtype: str, key: str) -> float:
        values = [entry[dtype][key] for entry in entries]
        return float(np.median([value["median"] if isinstance(value, Mapping) else value for value in values]))

    rows = []
    for learner in LEARNERS:
        for hidden in HIDDEN:
            of = [entry for entry in results["entries"]
                  if entry["learner"] == learner and tuple(entry["hidden"]) == hidden]
            shares = [median(of, "float32", "seen_share"), median(of, "float32", "bound_share"),
                      median(of, "float32", "order_share"), median(of, "float64", "bound_share"),
                      median(of, "float64", "order_share")]
            times = [median(of, dtype, "one_row_us") for dtype in ("float32", "float64")]
            rows.append([learner, "x".join(map(str, hidden)), *(f"{share:.1e}" if share else "0" for share in shares),
                         *map(number, times)])
    machine = results["machine"]
    note = (f"Medians over {len({entry['seed'] for entry in results['entries']})} seeds; {INPUTS} inputs, {POINTS:,} "
            f"points; shares of the output's range over them. Order: what execution may add to a violation of it. One "
            f"row: median of {REPEATS} medians. {machine['cpu_model']}, load {results['load_average_before']}, "
            f"{machine['date'][:10]}.")
    return table(["network", "hidden", "float32: seen", "bound", "order", "float64: bound", "order",
                  "one row, µs: float32", "float64"], rows, right=range(2, 9)) + "\n\n" + note


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])


def run(options: argparse.Namespace) -> None:
    """Measures all networks, and prints the table."""
    torch.set_num_threads(1)
    load, entries, began = load_average(), [], time.perf_counter()
    for learner in LEARNERS:
        for hidden in HIDDEN:
            for seed in options.seeds:
                entries.append(measure(learner, hidden, seed))
                print(f"{time.perf_counter() - began:.0f} s: {learner}, {hidden}, seed {seed}", file=sys.stderr)
    results = {"format": FORMAT, "machine": {**describe_machine(), "date": now_utc()}, "load_average_before": load,
               "entries": entries}
    write_results(options.output, results)
    print(rounding_table(results))
