"""Workloads trained one by one and together, as one stack of networks: seconds of each, and what differs at the end.

    python -m benchmarks stacked-training [--repeats 3]

Synthetic workloads of the size of a small recorded one, with rows, directions and noise of their own, through the whole
of Algorithm 1 with the default method: learner and unverified twin, verification, attacks. Both ways start from the
same networks and seeds. Time is that of one core in this process, so that work beside it does not count.
Resumable: a cell that is there for the same code and sizes is kept.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import number, paragraph, table, with_unit
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from models.learners.mlp import build_mlp, linear_layers
from models.training.counterexample_loop import CounterexampleLoop, LoopResult
from models.training.denormal_numbers import denormals_flushed
from models.training.evaluation import mean_squared_error
from models.training.settings import TrainingSettings
from models.training.sign_pattern import initialise
from models.training.stacked_training import stacks, train_stacked, train_together
from models.verification.language.properties import Monotonicity
from models.verification.language.specification import FloatArray, Specification
from models.verification.network.fully_connected import network_from_torch

OUTPUT = RESULTS / "stacked_training.json"
CELLS = (((32, 32), (1, 5, 20, 80)), ((300, 300), (1, 5, 20)))  # hidden layers, numbers of workloads
INPUTS, TEST_ROWS = 10, 500
LEAST_ROWS, MOST_ROWS = 120, 240
EPOCHS, REPEATS = 50, 3


@dataclass(frozen=True)
class Problem:
    """One workload: x (m, n) in 0..1, y (m,), test rows, and the features in which the target rises or falls."""

    x: FloatArray
    y: FloatArray
    x_test: FloatArray
    y_test: FloatArray
    directions: tuple[tuple[int, int], ...]


def make_problem(seed: int) -> Problem:
    """A target that rises in one feature, rises or falls in another and waves in a third, with noise."""
    rng = np.random.default_rng(seed)
    rows, sign = int(rng.integers(LEAST_ROWS, MOST_ROWS)), int(rng.choice([-1, 1]))
    x = rng.random((rows + TEST_ROWS, INPUTS))
    y = 0.4 * x[:, 0] ** 2 + 0.2 * sign * x[:, 1] + 0.1 * np.sin(6 * x[:, 2]) + 0.03 * rng.normal(size=len(x))
    return Problem(x[:rows], y[:rows], x[rows:], y[rows:], ((0, 1), (1, sign)))


def make_loop(problem: Problem, hidden: Sequence[int], epochs: int, seed: int) -> CounterexampleLoop:
    """Of fresh networks."""
    network, twin = (build_mlp(INPUTS, hidden, torch.Generator().manual_seed(seed)) for _ in range(2))
    initialise(linear_layers(network), problem.directions)
    claim = Specification(
        tuple(f"x{k}" for k in range(INPUTS)), np.zeros(INPUTS), np.ones(INPUTS),
        tuple(Monotonicity((feature,), "increasing" if sign > 0 else "decreasing")
              for feature, sign in problem.directions))
    return CounterexampleLoop(network, twin, problem.x, problem.y, claim, TrainingSettings(epochs=epochs), seed)


@dataclass(frozen=True)
class Way:
    """A way of training many loops.

    Attributes:
        train: all loops for so many epochs.
        run: all loops to their end.
    """

    train: Callable[[int, Sequence[CounterexampleLoop]], None]
    run: Callable[[Sequence[CounterexampleLoop]], list[LoopResult]]


def _train_alone(epochs: int, loops: Sequence[CounterexampleLoop]) -> None:
    for loop in loops:
        loop.train(epochs)


def _train_together(epochs: int, loops: Sequence[CounterexampleLoop]) -> None:
    for members in stacks(loops):
        train_stacked([loops[index] for index in members], epochs)


def _run_together(loops: Sequence[CounterexampleLoop]) -> list[LoopResult]:
    results: dict[int, LoopResult] = {}
    for index, result in train_together(loops):
        if isinstance(result, Exception):
            raise result
        results[index] = result
    return [results[index] for index in range(len(loops))]


WAYS = {"alone": Way(_train_alone, lambda loops: [loop.run() for loop in loops]),
        "together": Way(_train_together, _run_together)}


def measure_cell(hidden: Sequence[int], workloads: int, epochs: int, repeats: int) -> dict[str, Any]:
    """Seconds a workload both ways, `repeats` values each, in turn; largest differences of what they end with."""
    problems = [make_problem(seed) for seed in range(workloads)]
    found: dict[str, Any] = {f"{way}_{what}": [] for way in WAYS for what in ("seconds", "training_seconds")}
    ended: dict[str, list[LoopResult]] = {}
    for _ in range(repeats):
        for name, way in WAYS.items():
            for what in ("training_seconds", "seconds"):
                loops = [make_loop(problem, hidden, epochs, seed) for seed, problem in enumerate(problems)]
                began = time.process_time()
                if what == "seconds":
                    ended[name] = way.run(loops)
                else:
                    way.train(epochs, loops)
                found[f"{name}_{what}"].append((time.process_time() - began) / workloads)
    pairs = [(getattr(one, part), getattr(other, part), problem) for part in ("network", "twin")
             for one, other, problem in zip(ended["alone"], ended["together"], problems, strict=True)]
    errors = [[mean_squared_error(network_from_torch(module).value(problem.x_test), problem.y_test)
               for module in (one, other)] for one, other, problem in pairs]
    return {**found,
            "weight_difference": max(float((_weights(a) - _weights(b)).abs().max()) for a, b, _ in pairs),
            "test_error_difference": max(abs(a - b) / a for a, b in errors),
            "same_verdicts": all(a.verdict.status is b.verdict.status for a, b in
                                 zip(ended["alone"], ended["together"], strict=True))}


def measure(path: Path, epochs: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs every cell that is not there yet; writes after each."""
    code = code_digest("models.training.stacked_training", "models")
    known = read_results(path) or {}
    results: dict[str, Any] = {"format": "assay-stacked-training/1", "cells": []}
    torch.set_num_threads(1)
    for hidden, counts in CELLS:
        for workloads in counts:
            wanted = {"hidden": list(hidden), "workloads": workloads, "epochs": epochs, "repeats": repeats,
                      "code": code}
            cell = next((one for one in known.get("cells", []) if wanted.items() <= one.items()), None)
            if cell is None:
                with denormals_flushed():  # as the step finetune does
                    cell = {**wanted, **measure_cell(hidden, workloads, epochs, repeats)}
                say(f"{list(hidden)}, {workloads} workloads: {statistics.median(cell['alone_seconds']):.3f} s alone, "
                    f"{statistics.median(cell['together_seconds']):.3f} s together")
            results["cells"].append(cell)
            write_results(path, {**results, "machine": {**describe_machine(), "date": now_utc()}})
    return results


def stacked_table(results: Mapping[str, Any]) -> str:
    """Seconds a workload both ways."""
    rows = []
    for cell in results["cells"]:
        median = {key: statistics.median(cell[key]) for key in cell if key.endswith("_seconds")}
        rows.append(["x".join(str(width) for width in cell["hidden"]), str(cell["workloads"]),
                     *(value for what in ("training_seconds", "seconds")
                       for value in _compared(median[f"alone_{what}"], median[f"together_{what}"])),
                     number(cell["weight_difference"]), number(cell["test_error_difference"])])
    return table(["hidden layers", "workloads", "training of one: alone", "together", "times as fast",
                  "whole loop of one: alone", "together", "times as fast", "largest difference of a weight",
                  "of a test error, relative"], rows, range(1, 10))


def conditions_line(results: Mapping[str, Any]) -> str:
    """Sizes, repeats and machine."""
    cell, machine = results["cells"][0], results["machine"]
    same = all(one["same_verdicts"] for one in results["cells"])
    return paragraph(
        f"Medians of {cell['repeats']} runs, seconds of one core a workload; {LEAST_ROWS} to {MOST_ROWS} rows,",
        f"{INPUTS} inputs, {cell['epochs']} epochs in batches of {TrainingSettings().batch_size}, learner and twin.",
        "The whole loop has two verifications and attacks on the twin besides, one by one.",
        f"{'All verdicts are the same both ways' if same else 'Some verdicts differ'}. {machine['cpu_model']}, torch",
        f"{machine['packages']['torch']}, {machine['date'][:10]}.")


def _compared(alone: float, together: float) -> list[str]:
    return [with_unit(alone, "s"), with_unit(together, "s"), f"{alone / together:.1f}"]


def _weights(module: nn.Sequential) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in module.parameters()])


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--repeats", type=int, default=REPEATS)


def run(options: argparse.Namespace) -> None:
    """Runs every cell that is not there yet."""
    measure(options.output, options.epochs, options.repeats, print)
